"""Third-party clients with their own reconnection continue after a restart of the node, without help from
their users.
"""

import os
import subprocess
from collections.abc import Callable

import pytest

from examples.node import NodeProcess
from interop.clients import RECONNECTING, MissingError, prepare_reconnecting
from tests.acceptance.conftest import StartNode

pytestmark = pytest.mark.timeout(120)


class Running:
    """A client process that sends and receives. Its lines are read as they arrive. The test's timeout ends a
    wait for a line that does not arrive.
    """

    def __init__(self, name: str, node: NodeProcess, log: str) -> None:
        try:
            command = prepare_reconnecting(name, install=bool(os.environ.get("INSTALL_CLIENTS")))
        except MissingError as error:
            pytest.skip(str(error))
        self.process = subprocess.Popen(
            [*command.arguments, "reconnect", node.url, log],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **command.environment},
        )

    def sent(self) -> int:
        """The number of its next event."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read("next", 0)

    def await_event(self, number: int) -> None:
        """Wait until it receives an event that it sent with this number or a later one."""
        self._read("got", number)

    def _read(self, word: str, at_least: int) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, _, rest = line.partition(" ")
            assert kind != "failed", line
            if kind == word and int(rest) >= at_least:
                return int(rest)
        pytest.fail(f"the client ended before it printed {word!r}")


@pytest.mark.parametrize("end", [NodeProcess.stop, NodeProcess.kill], ids=["sigterm", "kill"])
@pytest.mark.parametrize("client", RECONNECTING)
def test_a_client_that_reconnects_continues_after_a_restart(
    client: str, end: Callable[[NodeProcess], object], start_node: StartNode
) -> None:
    """A node that stops reports amqp:connection:forced on the connection (AMQP 2.8.16). It does not close
    links, because a closing detach ends a link permanently.
    """
    node = start_node(log="one:1")
    running = Running(client, node, "one")
    try:
        running.await_event(0)
        end(node)
        number = running.sent()
        node.start()
        running.await_event(number)
    finally:
        running.process.kill()
        running.process.communicate()
