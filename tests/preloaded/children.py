"""[io] The node and the workers of a gateway that is a fork are forks as well.

They come from a preloaded process of the gateway's own, which is made before the gateway begins. Later the
gateway has threads and an event loop, and cannot fork.
"""

import asyncio
import fcntl
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from tests.preloaded import launching, requests
from tests.preloaded.becoming import become
from tests.preloaded.forking import forked
from tests.preloaded.requests import Request

_ABOVE: Final = 512
"""The number of a descriptor that no program uses by its number."""


class Child:
    """What the gateway uses of `asyncio.subprocess.Process`, around a process that `subprocess` started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid: Final = process.pid
        self.returncode: int | None = None
        self.terminate: Final = process.terminate
        self.kill: Final = process.kill
        self.send_signal: Final = process.send_signal
        self._process: Final = process
        self._ended: Final = asyncio.Event()
        self._descriptor: Final = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    async def wait(self) -> int:
        """See `asyncio.subprocess.Process`."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        self.returncode = self._process.wait()
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._ended.set()


async def _start(program: str, *words: str, **options: Any) -> Any:
    """In place of `asyncio.create_subprocess_exec`: a loop of uvloop does not use `subprocess`."""
    return Child(subprocess.Popen([program, *words], **options))  # noqa: ASYNC220  a fork takes milliseconds


def prepare(gateway: Request, descriptors: Sequence[int]) -> None:
    """Fork a preloaded process, if `gateway` is one that starts others.

    `descriptors`: those of the gateway, which the preloaded process must not keep open.
    """
    words = gateway.arguments
    if not words[0].endswith("knative-gateway") or "serve" not in words:
        return
    if "--amqp" in words and "--workers" not in words:
        return
    ours, its = requests.pair()
    if os.fork():
        its.close()
        with ours:
            kept = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        launching.install(socket.socket(fileno=kept))
        asyncio.create_subprocess_exec = _start  # type: ignore[assignment]  # it returns what the gateway needs
        return
    ours.close()
    for descriptor in descriptors:
        os.close(descriptor)
    with its:
        received = forked(its)
    if received is None:
        os._exit(0)
    become(*received)
