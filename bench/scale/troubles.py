"""What happens to a node and a gateway in the mixed run: restarts, kills, reloads and a full disk,
in turn.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from examples.gateway import GatewayProcess
from examples.node import NodeProcess

FULL_SECONDS: Final = 20.0
_DISK_BYTES: Final = 3 << 30
_BALLAST_BLOCK: Final = bytes(1 << 20)


class Trouble(StrEnum):
    """The kinds, in the order in which they happen."""

    STOP_GATEWAY = "SIGTERM gateway"
    STOP_NODE = "SIGTERM node"
    KILL_GATEWAY = "kill -9 gateway"
    RELOAD = "SIGHUP both"
    KILL_NODE = "kill -9 node"
    FULL_DISK = "full disk"


@dataclass
class Disk:
    """A file system of the node's own, so that it can be full without harm to the machine."""

    folder: Path

    @property
    def ballast(self) -> Path:
        """The file that fills it."""
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        with self.ballast.open("ab", buffering=0) as file:
            block = _BALLAST_BLOCK
            while block:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def free(self) -> None:
        """Give the space back."""
        self.ballast.unlink(missing_ok=True)


@contextmanager
def disk(folder: Path, image: Path) -> Iterator[Disk | None]:
    """Mount a file system at `folder`; None where this process may not mount one."""
    folder.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(_DISK_BYTES)
    made = _succeeds("mkfs.ext4", "-q", "-F", str(image)) and _succeeds(
        "mount", "-o", "loop", str(image), str(folder)
    )
    if not made:
        print("no file system can be mounted here: the disk will not be full", file=sys.stderr)
        yield None
        return
    try:
        yield Disk(folder)
    finally:
        _succeeds("umount", "--lazy", str(folder))


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@dataclass
class Troubles:
    """Makes the troubles. `failed`: what a process did not do as it should."""

    gateway: GatewayProcess
    node: NodeProcess
    disk: Disk | None
    made: list[Trouble] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def next(self, kinds: Sequence[Trouble] = tuple(Trouble)) -> Trouble:
        """The kind whose turn it is."""
        possible = [kind for kind in kinds if kind is not Trouble.FULL_DISK or self.disk is not None]
        return possible[len(self.made) % len(possible)]

    async def make(self, trouble: Trouble) -> None:
        """Do it, and return when both processes listen again."""
        match trouble:
            case Trouble.STOP_GATEWAY:
                await self._stop(self.gateway)
            case Trouble.STOP_NODE:
                await self._stop(self.node)
            case Trouble.KILL_GATEWAY:
                await self._kill(self.gateway)
            case Trouble.KILL_NODE:
                await self._kill(self.node)
            case Trouble.RELOAD:
                os.kill(self.gateway.pid, signal.SIGHUP)
                os.kill(self.node.pid, signal.SIGHUP)
            case Trouble.FULL_DISK:
                assert self.disk is not None
                await asyncio.to_thread(self.disk.fill)
                await asyncio.sleep(FULL_SECONDS)
                self.disk.free()
        self.made.append(trouble)

    async def _stop(self, process: NodeProcess) -> None:
        try:
            status = await asyncio.to_thread(process.stop)
        except subprocess.TimeoutExpired as error:
            self.failed.append(f"SIGTERM: {error}")
            await asyncio.to_thread(process.kill)
        else:
            if status != 0:
                self.failed.append(f"SIGTERM ended with {status}: {process.words[-1000:]}")
        await asyncio.to_thread(process.start)

    async def _kill(self, process: NodeProcess) -> None:
        await asyncio.to_thread(process.kill)
        await asyncio.to_thread(process.start)
