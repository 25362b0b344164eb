"""Pages whose commands and programs run as tests: in order, in a folder of their own, against real processes.

The conventions of such a page:

- "Save this as `NAME`" before a block: the block is the content of the file NAME.
- A block `console` has commands after `$ `, and below each command what it prints. `…` is any text.
- A command that serves (`SERVERS`) runs until the page ends, as in a terminal of its own.
- "Press Ctrl-C in" before a block: all programs of such terminals are stopped first.
- A block `text` is what the last program of such a terminal prints.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest

from bench.server import free_port
from tests.spark_connector.sessions import JVM

ROOT: Final = Path(__file__).parent.parent
WAIT_S_MAX: Final = 250.0
"""Shows that a command ends, not how fast: much else may run at the same time."""
BEFORE: Final = ("make setup", "python3 -m venv ", "source ", "pip install ")
"""How commands begin that have run before the tests."""
INSTALLS: Final = ("npm install ", "go get ", "mvn ")
"""How commands begin that need the network: without it, the rest of the page is skipped."""
LOOKS: Final = re.compile(r"knative-gateway (history|get) |kubectl .* get ")
"""Commands that show what changes by itself: they are repeated until they print what the page shows."""
SERVERS: Final = re.compile(
    r"(amqp-streams|knative-gateway) serve (?!.*--check)|amqp-streams receive .*--follow|python subscriber"
)
_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
_FILE: Final = re.compile(r"[Ss]ave this as `([\w./-]+)`")
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1)(:|\", |\", port: )(\d{4})\b")


class Block(NamedTuple):
    """A block of code of a page. `file`: where the page wants it saved; `stops`: it says that all programs
    that serve are to be stopped before.
    """

    language: str
    body: str
    file: str | None
    stops: bool


class Command(NamedTuple):
    """A command and the lines that the page shows after it."""

    text: str
    shown: str


def blocks(page: str) -> Iterator[Block]:
    """All blocks of a page."""
    end = 0
    for found in _BLOCK.finditer(page):
        before = page[end : found.start()]
        named = _FILE.findall(before)
        end = found.end()
        file = named[-1] if named else None
        yield Block(found["language"], textwrap.dedent(found["body"]), file, "Press Ctrl-C in" in before)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block `console`."""
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        text, _, shown = part.replace("\\\n", " ").partition("\n")
        yield Command(text, shown)


def pattern(shown: str) -> re.Pattern[str]:
    """What the page shows; `…` is any text. Blanks at the ends of lines and the width of columns do not
    count.
    """
    lines = (
        ".*".join(re.sub(r"(?:\\ ){2,}", " +", re.escape(part)) for part in line.rstrip().split("…"))
        for line in shown.strip().splitlines()
    )
    more = ".*" if not shown.strip() or "…" in shown else ""
    return re.compile(r"\s*".join(f"{line}[ \t]*" for line in lines) + more, re.DOTALL)


class Reader:
    """A user who follows a page: in a folder with the examples, on free ports. Use it with `with`."""

    def __init__(self, page: str, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.terminals: list[subprocess.Popen[bytes]] = []
        self.ran = 0
        (folder / "examples").symlink_to(ROOT / "examples")
        page_ports = sorted({number for _, number in _PORT.findall(page)} | {"5672", "8080"})
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
            "AMQP_STREAMS_CONTEXTS": str(folder / "contexts.json"),
            "KNATIVE_GATEWAY_URL": f"http://127.0.0.1:{self.ports['8080']}",
        }

    def follow(self) -> None:
        """Do what the page says, from its first line to its last, and compare what it shows."""
        for block in blocks(self.page):
            if block.stops:
                self.leave()
            if block.file is not None:
                self.save(block.file, block.body)
            elif block.language == "text":
                self.see(block.body)
            elif block.language == "console":
                for command in commands(block):
                    self.do(command)

    def missing(self) -> list[str]:
        """The programs of the page that this machine does not have."""
        typed = [command.text for block in blocks(self.page) for command in commands(block)]
        first = {word for text in typed if (word := shlex.split(text, comments=True)[0]) != "source"}
        ours = {"cd", "amqp-streams", "knative-gateway", "pip", "python"}
        return sorted(word for word in first - ours if shutil.which(word) is None)

    def save(self, file: str, body: str) -> None:
        """Write a file of the page."""
        (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / file).write_text(self.here(body))

    def do(self, command: Command) -> None:
        """Type one command."""
        self.ran += 1
        if command.text.startswith(BEFORE):
            return
        if SERVERS.match(command.text):
            self.start(command.text)
        else:
            self.run(command)

    def here(self, text: str) -> str:
        """The text with the ports of this run."""
        return _PORT.sub(lambda found: found[1] + self.ports[found[2]], text)

    def output_of(self, terminal: int) -> str:
        """What the program of a terminal has printed."""
        return (self.folder / f"{terminal}.output").read_text(errors="replace")

    def start(self, command: str) -> None:
        """Start a program that serves, and wait until it listens."""
        terminal = len(self.terminals)
        environment = self.environment
        if " serve " in command:
            environment = {name: value for name, value in environment.items() if not name.endswith("_URL")}
        with (self.folder / f"{terminal}.output").open("wb") as output:
            words = shlex.split(self.here(command))
            self.terminals.append(
                subprocess.Popen(words, cwd=self.folder, env=environment, stdout=output, stderr=output)
            )
        # It listens at the addresses of its command or of the file that the command names.
        files = [(self.folder / word) for word in words if (self.folder / word).is_file()]
        listening = " ".join([*words, *(file.read_text() for file in files)])
        for port in re.findall(r"127\.0\.0\.1(?::|\", )(\d+)\b", listening):
            self.await_port(terminal, int(port))

    def await_port(self, terminal: int, port: int) -> None:
        """Wait until something listens on the port."""
        until = time.monotonic() + WAIT_S_MAX
        while True:
            assert self.terminals[terminal].poll() is None, self.output_of(terminal)
            assert time.monotonic() < until, self.output_of(terminal)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)

    def run(self, command: Command) -> None:
        """Run a command to its end, and compare what it prints."""
        text, expected = self.here(command.text), pattern(self.here(command.shown))
        until = time.monotonic() + WAIT_S_MAX
        while True:
            done = self.shell(text)
            printed = [part for part in (done.stdout.strip(), done.stderr.strip()) if part]
            if command.text.startswith(INSTALLS):
                if done.returncode:
                    pytest.skip(f"{text}: {''.join(printed)[-300:]}")
                return
            assert done.returncode == 0, (text, printed)
            if any(expected.fullmatch(one) for one in (*printed[:1], "\n".join(printed))):
                return
            difference = f"$ {text}\n--- the page shows:\n{command.shown}\n--- it prints:\n{printed}"
            assert LOOKS.match(command.text), difference
            assert time.monotonic() < until, difference

    def shell(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the shell of the page."""
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )

    def see(self, text: str) -> None:
        """Wait until the program of the last terminal has printed exactly this."""
        until = time.monotonic() + WAIT_S_MAX
        expected = pattern(text)
        while not expected.fullmatch(self.printed()) and time.monotonic() < until:
            time.sleep(0.05)
        assert expected.fullmatch(self.printed()), (text, self.printed())

    def printed(self) -> str:
        """Without the lines that the HTTP server of Python writes about requests."""
        lines = self.output_of(len(self.terminals) - 1).splitlines()
        return "\n".join(line for line in lines if '"POST / HTTP/1.1" 202' not in line)

    def leave(self) -> list[int]:
        """Ctrl-C in every terminal; the exit statuses."""
        for program in reversed(self.terminals):
            if program.poll() is None:
                program.send_signal(signal.SIGINT)
        try:
            return [program.wait(WAIT_S_MAX) for program in self.terminals]
        finally:
            for program in self.terminals:
                program.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
