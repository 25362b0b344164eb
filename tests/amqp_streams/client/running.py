"""The real node in a separate process."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

_PROGRAM = Path(sys.executable).with_name("amqp-streams")


class RunningNode:
    """`amqp-streams serve` on ports of the system's choice; after `kill` and `start` on the same ones."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        self._folder = folder
        self._arguments = [str(argument) for argument in arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self.amqp: list[str] = []
        self.admin: list[str] = []

    @property
    def url(self) -> str:
        """The URL of the first listener."""
        return f"amqp://{self.amqp[0]}"

    def start(self) -> Self:
        """Start it and wait until it listens."""
        listeners = [f"--listen={address}" for address in self.amqp or ["127.0.0.1:0"]]
        reading, writing = os.pipe()
        with (self._folder / "log").open("ab") as log:
            data, ready = f"--data-dir={self._folder / 'data'}", f"--ready-fd={writing}"
            self._process = subprocess.Popen(
                [_PROGRAM, "serve", data, ready, *listeners, *self._arguments],
                pass_fds=[writing],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.readline()
        assert told, (self._folder / "log").read_text()
        addresses = json.loads(told)
        self.amqp, self.admin = addresses["amqp"], addresses.get("admin", [])
        return self

    def kill(self) -> None:
        """End the process as a power loss does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and return the output at the end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                assert self._process.wait(60) == 0, (self._folder / "log").read_text()
            self.kill()
