"""docs/tutorial.md: each command runs as it is written, and prints what the page shows."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bench.server import free_port
from tests.spark_connector.sessions import JVM

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
WAIT_S_MAX: Final = 250.0
"""Shows that a command ends, not how fast: much else may run beside it."""
DONE_BEFORE: Final = {"make setup", "source .venv/bin/activate"}
"""Commands of the page that have run before the tests."""
_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
_FILE: Final = re.compile(r"Save this as `([\w.]+)`")
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1)(:|\", )(\d{4})\b")


class Block(NamedTuple):
    """A block of code of the page; `file`: where the page wants it saved."""

    language: str
    body: str
    file: str | None


class Command(NamedTuple):
    """A command and the lines that the page shows after it."""

    text: str
    shown: str


def blocks(page: str) -> Iterator[Block]:
    end = 0
    for found in _BLOCK.finditer(page):
        named = _FILE.findall(page[end : found.start()])
        end = found.end()
        yield Block(found["language"], textwrap.dedent(found["body"]), named[-1] if named else None)


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        text, _, shown = part.replace("\\\n", " ").partition("\n")
        yield Command(text, shown)


def stays(command: str) -> bool:
    """Whether the command is a server, which runs until it is stopped."""
    return re.match(r"(amqp-streams|knative-gateway) serve |python subscriber", command) is not None


def pattern(shown: str) -> re.Pattern[str]:
    """What the page shows; `…` is any text, and blanks at the ends of lines do not count."""
    lines = (
        ".*".join(re.escape(part) for part in line.rstrip().split("…")) for line in shown.strip().splitlines()
    )
    more = ".*" if not shown.strip() or "…" in shown else ""
    return re.compile(r"\s*".join(f"{line}[ \t]*" for line in lines) + more, re.DOTALL)


class Reader:
    """A user who follows the tutorial: in a folder with the examples, on free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "examples").symlink_to(ROOT / "examples")
        page_ports = sorted({number for _, number in _PORT.findall(PAGE)})
        self.ports = {number: str(free_port()) for number in page_ports}
        settings = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AMQP_STREAMS_", "KNATIVE_GATEWAY_"))
        }
        self.environment = settings | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            # The compiler that takes long for faster code pays only after minutes.
            "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{JVM}' pyspark-shell",
            "AMQP_STREAMS_URL": f"amqp://127.0.0.1:{self.ports['5672']}",
            "KNATIVE_GATEWAY_URL": f"http://127.0.0.1:{self.ports['8080']}",
        }

    def here(self, text: str) -> str:
        """The text with the ports of this run."""
        return _PORT.sub(lambda found: found[1] + self.ports[found[2]], text)

    def output_of(self, server: str) -> str:
        return (self.folder / f"{server}.output").read_text(errors="replace")

    def start(self, command: str) -> None:
        name = command.split(maxsplit=1)[0] if "serve" in command else "subscriber"
        environment = {name: value for name, value in self.environment.items() if not name.endswith("_URL")}
        with (self.folder / f"{name}.output").open("wb") as output:
            words = shlex.split(self.here(command))
            self.servers[name] = subprocess.Popen(
                words, cwd=self.folder, env=environment, stdout=output, stderr=output
            )
        port = {"amqp-streams": "5672", "knative-gateway": "8080", "subscriber": "8081"}[name]
        until = time.monotonic() + WAIT_S_MAX
        while True:
            assert self.servers[name].poll() is None, self.output_of(name)
            assert time.monotonic() < until, self.output_of(name)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(self.ports[port]))) == 0:
                    return
            time.sleep(0.05)

    def run(self, command: Command) -> None:
        text = self.here(command.text)
        done = subprocess.run(
            text,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )
        assert done.returncode == 0, (text, done.stderr)
        shown = self.here(command.shown)
        assert pattern(shown).fullmatch(done.stdout.strip() or done.stderr.strip()), (
            text,
            shown,
            done.stdout,
            done.stderr,
        )

    def see(self, text: str) -> None:
        """Wait until the subscriber has printed exactly this."""
        until = time.monotonic() + WAIT_S_MAX
        while self.printed() != text.strip() and time.monotonic() < until:
            time.sleep(0.05)
        assert self.printed() == text.strip()

    def printed(self) -> str:
        """Without the lines that the HTTP server writes about requests."""
        lines = self.output_of("subscriber").splitlines()
        return "\n".join(line for line in lines if '"POST / HTTP/1.1" 202' not in line)

    def leave(self) -> list[int]:
        """Ctrl-C in every terminal; the exit statuses."""
        for server in reversed(self.servers.values()):
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
        try:
            return [server.wait(WAIT_S_MAX) for server in self.servers.values()]
        finally:
            for server in self.servers.values():
                server.kill()


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_works_and_prints_what_is_shown(tmp_path: Path) -> None:
    reader, ran, statuses = Reader(tmp_path), 0, []
    try:
        for block in blocks(PAGE):
            if block.file is not None and block.language != "console":
                (tmp_path / block.file).write_text(reader.here(block.body))
            elif block.language == "text":
                reader.see(block.body)
            elif block.language == "console":
                for command in commands(block):
                    ran += 1
                    if command.text in DONE_BEFORE:
                        continue
                    if command.text.startswith("rm "):
                        statuses = reader.leave()
                    if stays(command.text):
                        reader.start(command.text)
                    else:
                        reader.run(command)
    finally:
        reader.leave()
    assert statuses[:2] == [0, 0], "the node and the gateway end well"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".output") == ["examples"], (
        "it is cleaned up"
    )
    assert ran == len(re.findall(r"^ *\$ ", PAGE, re.MULTILINE)) >= 15
