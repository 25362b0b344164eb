"""A console as its users run it: a real process, in front of a real node."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

START_SECONDS_MAX: Final = 120.0
WAIT_S: Final = 60.0


def until(met: Callable[[], bool], what: str) -> None:
    """Wait until `met` returns True. `what`: the words of the failure."""
    deadline = time.monotonic() + WAIT_S
    while not met():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def console_pids(words: str) -> list[int]:
    """Return the process ids of all consoles that a service has started, from its log lines."""
    lines = [line for line in words.splitlines() if "console_started" in line]
    return [int(line.rpartition("pid=")[2].split()[0]) for line in lines]


def runs(pid: int) -> bool:
    """Return whether the process exists, and is not only waited for."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


class ConsoleProcess:
    """`amqp-streams console` for the node at `url`. Use it with `with`."""

    program = "amqp-streams"
    flag = "--url"

    def __init__(self, folder: Path, url: str, *options: str, listen: str = "127.0.0.1:0") -> None:
        self._folder: Final = folder
        self._command: Final = [
            str(Path(sys.executable).parent / self.program),
            "console",
            self.flag,
            url,
            "--ready-file",
            str(folder / "console.json"),
            *options,
        ]
        self._listen = listen
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where browsers connect: `http://127.0.0.1:…`."""
        return f"http://{self._listen}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def words(self) -> str:
        return (self._folder / "console.log").read_text(errors="replace")

    def __enter__(self) -> Self:
        ready = self._folder / "console.json"
        ready.unlink(missing_ok=True)
        with (self._folder / "console.log").open("ab") as words:
            self._process = subprocess.Popen(
                [*self._command, "--listen", self._listen],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith(("AMQP_", "KNATIVE_"))
                },
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            assert self._process.poll() is None, self.words
            assert time.monotonic() < deadline, self.words
            time.sleep(0.01)
        self._listen = json.loads(ready.read_text())["console"][0]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                status = self._process.wait(60)
            finally:
                self._process.kill()
            assert status == 0, self.words
        assert "Traceback" not in self.words, self.words


class GatewayConsoleProcess(ConsoleProcess):
    """`knative-gateway console` for the gateway at `url`."""

    program = "knative-gateway"
    flag = "--server"
