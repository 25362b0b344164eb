"""A node with users and a console for it: real processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.node import NodeProcess
from tests.web_console.http_client import Person
from tests.web_console.processes import ConsoleProcess

PASSWORD = "correct horse"
RULES = """
users = "{users}"
[[access]]
users = ["admin"]
logs = ["*"]
allow = ["send", "receive", "info", "manage"]
[[access]]
users = ["reader"]
logs = ["temps"]
allow = ["receive", "info"]
"""


def add_user(file: Path, name: str) -> None:
    program = str(Path(sys.executable).parent / "amqp-streams")
    command = [program, "user", "add", name, "--users", str(file), "--password-stdin"]
    subprocess.run(command, input=f"{PASSWORD}\n", text=True, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def guarded_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with the users admin and reader, without anonymous connections."""
    folder = tmp_path_factory.mktemp("guarded")
    for user in ("admin", "reader"):
        add_user(folder / "users", user)
    (folder / "node.toml").write_text(RULES.format(users=folder / "users"))
    options = ("--config", str(folder / "node.toml"), "--anonymous", "never")
    with NodeProcess(folder / "node", *options, log=["temps:2", "secret:1"]) as node:
        yield node
        assert "Traceback" not in node.words, node.words


@pytest.fixture(scope="module")
def guarded_console(
    guarded_node: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(tmp_path_factory.mktemp("console"), guarded_node.url) as console:
        yield console


@pytest.fixture
def person(guarded_console: ConsoleProcess) -> Person:
    return Person(guarded_console.address)
