"""The web console as a child process of the node: `serve --console-listen`."""

import http.client
import os
import signal
import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from amqp_streams.config import Listener, NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.console import Console, node_url
from amqp_streams.server.listening.sockets import BoundAddress
from examples.node import NodeProcess
from service_parts import console_child
from service_parts.settings.consoles import ConsoleSettings
from tests.web_console.http_client import Person
from tests.web_console.processes import console_pids, runs, until

WAIT_S = 60.0


def test_a_node_serves_a_console_and_starts_it_again(tmp_path: Path) -> None:
    """The address stays, so a browser only waits; the node is not affected; both end together."""
    options = ("--console-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    with NodeProcess(tmp_path / "node", *options, log="temps:2") as node:
        [address] = node.addresses["console"]
        person = Person(address)
        assert person.log_in(how="anonymous").status == 303
        assert "temps" in person.get("/logs").text
        admin = http.client.HTTPConnection(node.addresses["admin"][0], timeout=WAIT_S)
        admin.request("GET", "/console")
        answer = admin.getresponse()
        assert (answer.status, answer.headers["location"]) == (307, f"http://{address}/")
        admin.close()
        [first] = console_pids(node.words)
        os.kill(first, signal.SIGKILL)
        # The socket is the node's: this request waits for the next console.
        assert Person(address).get("/healthz").status == 200
        last = console_pids(node.words)[-1]
        assert last != first
        assert "console_ended" in node.words
        assert node.stop() == 0
        assert not runs(last)
    assert "Traceback" not in node.words


def test_a_console_ends_with_a_node_that_is_killed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--console-listen", "127.0.0.1:0") as node:
        until(lambda: bool(console_pids(node.words)), node.words)
        assert Person(node.addresses["console"][0]).get("/healthz").status == 200
        [pid] = console_pids(node.words)
        os.kill(node.pid, signal.SIGKILL)
        until(lambda: not runs(pid), "the console still runs")


def test_a_node_that_was_killed_starts_again_at_once_at_the_address_of_its_console(tmp_path: Path) -> None:
    """The former console has the address for a moment longer than the node lives."""
    with NodeProcess(tmp_path / "node", "--console-listen", "127.0.0.1:0") as first:
        [address] = first.addresses["console"]
        assert Person(address).get("/healthz").status == 200
        first.kill()
        with NodeProcess(tmp_path / "node", "--console-listen", address) as node:
            assert Person(node.addresses["console"][0]).get("/healthz").status == 200


async def test_an_address_in_use_is_an_error_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_child, "BIND_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = ConsoleSettings.model_validate({"listen": f"127.0.0.1:{port}"})
        child = Console(NodeSettings(data_dir=tmp_path), wanted, "amqp://127.0.0.1:1")
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            await child.start()
        await child.stop()


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_child, "_NEEDED", "no_such_library")
    wanted = ConsoleSettings.model_validate({"listen": "127.0.0.1:0"})
    child = Console(NodeSettings(data_dir=tmp_path), wanted, "amqp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"amqp-event-streams\[console\]"):
        await child.start()


@pytest.mark.parametrize(
    ("addresses", "url"),
    [
        ([("0.0.0.0", 5672, False)], "amqp://127.0.0.1:5672"),
        ([("::", 5672, False)], "amqp://[::1]:5672"),
        ([("10.0.0.1", 5671, True), ("10.0.0.1", 5672, False)], "amqp://10.0.0.1:5672"),
    ],
)
def test_the_console_connects_to_the_first_address_without_tls(
    addresses: list[tuple[str, int, bool]], url: str
) -> None:
    bound = [BoundAddress(host, port, tls) for host, port, tls in addresses]
    assert node_url(bound) == url


def test_a_node_with_tls_only_needs_the_url_for_its_console(tmp_path: Path) -> None:
    (tmp_path / "c.pem").touch()
    settings = {
        "data_dir": tmp_path,
        "listen": [Listener(host="127.0.0.1", port=0, tls=True)],
        "tls": {"certificate": tmp_path / "c.pem", "key": tmp_path / "c.pem"},
        "console": {"listen": "127.0.0.1:0"},
    }
    with pytest.raises(ValidationError, match=r"set console.url to a URL with the name in the certificate"):
        NodeSettings.model_validate(settings)
    NodeSettings.model_validate(
        settings | {"console": {"listen": "127.0.0.1:0", "url": "amqps://node.example"}}
    )
