"""[io] The first node of a gateway that is a fork: a fork as well, made before the gateway begins.

Later the gateway has threads and an event loop, and cannot fork. The command restarts a node that ends.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, Final

from tests.preloaded import launching, requests
from tests.preloaded.becoming import become
from tests.preloaded.requests import Request


class FirstNode:
    """What the gateway uses of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid
        self.returncode: int | None = None
        self._ended: Final = asyncio.Event()
        self._descriptor: Final = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    async def wait(self) -> int:
        """See `asyncio.subprocess.Process`."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """See `asyncio.subprocess.Process`."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """See `asyncio.subprocess.Process`."""
        os.kill(self.pid, signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._ended.set()


def prepare(gateway: Request) -> None:
    """Fork the process that becomes the node, if `gateway` is one that starts a node."""
    words = gateway.arguments
    if not words[0].endswith("knative-gateway") or "serve" not in words or "--amqp" in words:
        return
    parent = os.getpid()
    ours, its = requests.pair()
    pid = os.fork()
    if not pid:
        ours.close()
        received = requests.receive(its)
        its.close()
        if received is None:
            os._exit(0)
        become(*received)
    its.close()
    by_the_system = asyncio.create_subprocess_exec

    async def start(program: str, *words: str, **options: Any) -> Any:
        asyncio.create_subprocess_exec = by_the_system
        with ours:
            standard = [os.open(os.devnull, os.O_RDONLY), options["stdout"], 2]
            kept = list(options["pass_fds"])
            what = launching.what([program, *words])
            assert what is not None
            environment = {os.fsencode(name): os.fsencode(value) for name, value in options["env"].items()}
            node = Request(*what, str(Path.cwd()), environment, kept, options["start_new_session"], parent)
            requests.send(ours, node, [*standard, *kept])
            os.close(standard[0])
        return FirstNode(pid)

    asyncio.create_subprocess_exec = start  # type: ignore[assignment]  # it returns what the gateway needs
