"""Start and stop the event log node under measurement, as users do: by its command, in a process of
its own.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.process import Usage, usage

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
_SYSTEM_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHANCE: Final = random.SystemRandom()
"""Forks of one process must not choose the same ports."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running node on a loopback port."""

    process: "subprocess.Popen[bytes]"
    port: int
    data_dir: Path

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"amqp://127.0.0.1:{self.port}"

    def usage(self) -> Usage:
        """What the node uses now."""
        return usage(self.process.pid)


def executable() -> str:
    """The `amqp-streams` of the Python that runs this.

    Raises:
        FileNotFoundError: it is not installed there.
    """
    beside = Path(sys.executable).parent / "amqp-streams"
    found = str(beside) if beside.exists() else shutil.which("amqp-streams")
    if found is None:
        message = "amqp-streams is not installed beside this Python: make setup"
        raise FileNotFoundError(message)
    return found


def free_port() -> int:
    """A port that nobody listens on at this moment.

    It is below the range from which the system gives ports to others, who would otherwise get it before the
    caller listens.
    """
    end = int(_SYSTEM_PORTS.read_text().split()[0]) if _SYSTEM_PORTS.exists() else 0
    below = range(max(1024, end - 16_384), end)
    with socket.socket() as probe:
        for port in _CHANCE.sample(below, min(100, len(below))):
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    folder: Path,
    *,
    logs: Sequence[str] = ("events:1",),
    options: Sequence[str] = (),
    wrapper: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    kafka: str = "",
) -> Iterator[Server]:
    """Run a node with its data in `folder`/data and its words in `folder`/server.log; `wrapper` goes before
    the command.

    `kafka`: the brokers that have its logs; the node then has no data directory.

    Raises:
        RuntimeError: it does not listen in time, or ended by itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data_dir, port = folder / "data", free_port()
    store = ["--store", "kafka", "--kafka-servers", kafka] if kafka else ["--data-dir", str(data_dir)]
    command = [*wrapper, executable(), "serve", *store, "--listen", f"127.0.0.1:{port}"]
    for log in logs:
        command += ["--log", log]
    with (folder / "server.log").open("ab") as words:
        process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            env={**os.environ, **(environment or {})},
        )
    try:
        _await_listening(process, port, folder / "server.log")
        yield Server(process, port, data_dir)
    finally:
        stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask our own process to end, then make it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_listening(process: "subprocess.Popen[bytes]", port: int, words: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            message = f"the server ended with {process.returncode}: {words.read_text()[-2000:]}"
            raise RuntimeError(message)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    message = f"nothing listens on port {port} after {START_SECONDS_MAX} s: {words.read_text()[-2000:]}"
    raise RuntimeError(message)
