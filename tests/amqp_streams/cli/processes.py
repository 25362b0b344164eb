"""The program in processes: a running node, and commands against it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from click.testing import CliRunner

from amqp_streams.cli import main

PROGRAM = (sys.executable, "-m", "amqp_streams.cli")
PATIENCE_S = 60.0


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def settings(**more: str) -> dict[str, str | None]:
    """Return our environment for a command in this process, without the settings that a user may have made
    for real nodes.
    """
    return {name: None for name in os.environ if name.startswith("AMQP_STREAMS_")} | more


def environment(**more: str) -> dict[str, str]:
    """Return our environment, without the settings that a user may have made for real nodes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AMQP_STREAMS_")} | more


@dataclass
class Node:
    """A running node."""

    process: subprocess.Popen[str]
    url: str

    def run(self, *words: str, stdin: str = "", **more: str) -> Done:
        """Run a command against it, in this process (it starts ten times as fast); stdin is a real one all
        the same.
        """
        with TemporaryFile() as file:
            file.write(stdin.encode())
            file.seek(0)
            before = os.dup(0)
            os.dup2(file.fileno(), 0)
            try:
                result = CliRunner().invoke(
                    main, words, input=stdin, env=settings(AMQP_STREAMS_URL=self.url, **more)
                )
            finally:
                os.dup2(before, 0)
                os.close(before)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return Done(result.exit_code, result.stdout, result.stderr)

    def process_of(self, *words: str, **more: str) -> Done:
        """Run a command against the node in a separate process."""
        done = subprocess.run(
            [*PROGRAM, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=environment(AMQP_STREAMS_URL=self.url, **more),
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def lines(self, *words: str) -> list[str]:
        """Return the lines that a command prints. The command must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the node, and return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def serving(directory: Path, *words: str, **more: str) -> Iterator[Node]:
    """Run a node on a free port. The block begins when the node reports that it is ready."""
    reading, writing = os.pipe()
    command = [
        *PROGRAM,
        "serve",
        "--data-dir",
        str(directory),
        "--listen",
        "127.0.0.1:0",
        "--ready-fd",
        str(writing),
        *words,
    ]
    with (directory.parent / "node.log").open("a") as log:
        process = subprocess.Popen(
            command, pass_fds=[writing], stderr=log, text=True, env=environment(**more)
        )
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            line = ready.readline()  # ends at once when the node ends
        assert line, (directory.parent / "node.log").read_text()
        yield Node(process, f"amqp://{json.loads(line)['amqp'][0]}")
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)
