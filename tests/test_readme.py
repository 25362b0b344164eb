"""The README is right: its commands run, its map is the tree, its limits are those of the code, and the tests
that it names exist.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.config import Limits
from amqp_streams.log_settings import PARTITIONS_MAX
from examples.node import NodeProcess

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCS = {path: path.read_text() for path in (ROOT / "README.md", ROOT / "docs" / "architecture.md")}
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
COMMAND_S_MAX = 100.0
"""The test shows that a command ends, not how fast: it starts a dozen processes, maybe on a busy machine."""
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "s": 1000}


def blocks(language: str) -> list[str]:
    """The blocks of a language in the README, without the indentation of their list items."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(one) for one in found]


def commands() -> list[str]:
    """The commands of the console blocks that use a running node.

    A line that ends with a backslash continues on the next line.
    """
    lines = "".join(blocks("console")).replace("\\\n", " ").splitlines()
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [command for command in typed if not command.startswith(("make ", "source "))]


def tracked_files() -> list[str]:
    """The repository's files; other people's and half-made ones do not count."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    return subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """As `make run` starts it, on another port."""
    assert "--log events:4" in (ROOT / "Makefile").read_text()
    with NodeProcess(tmp_path_factory.mktemp("readme"), log="events:4") as running:
        yield running


@pytest.mark.timeout(300)
def test_every_command_of_the_five_minutes_works(node: NodeProcess) -> None:
    assert len(commands()) > 5
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "AMQP_STREAMS_URL": node.url}
    for command in commands():
        done = subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout or " send " in command or " create " in command, command


def test_the_python_of_the_readme_runs(node: NodeProcess) -> None:
    [program] = blocks("python")
    client = [str(Path(sys.executable)), "-c", program.replace("amqp://127.0.0.1:5672", node.url)]
    environment = {**os.environ, "AMQP_STREAMS_URL": node.url}
    create = [str(Path(sys.executable).parent / "amqp-streams"), "log", "create", "temps"]
    subprocess.run(
        create, env=environment, capture_output=True, timeout=COMMAND_S_MAX, check=False
    )  # there already if the commands ran before
    done = subprocess.run(client, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[0-9]+\n", done.stdout)


def test_the_limits_are_those_of_the_code() -> None:
    defaults = Limits().model_dump()
    table = README.split("### Limits")[1].split("\n## ")[0]
    rows = re.findall(r"^\| .* \| ([^|]+) \| `(?:limits\.)?(\w+)` \|$", table, re.MULTILINE)
    assert len(rows) > 10
    for text, name in rows:
        number, unit = re.match(r"([0-9,]+)(?: (KiB|MiB|s)\b)?", text).groups()  # type: ignore[union-attr]
        if name == "partitions":
            assert f"1 to {PARTITIONS_MAX:,}" in text
            continue
        default = defaults[f"{name}_ms"] if unit == "s" else defaults[name]
        assert int(number.replace(",", "")) * _UNITS.get(unit, 1) == default, name


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_the_tests_that_are_named_exist(document: Path) -> None:
    named = _TEST.findall(DOCS[document])
    assert len(named) > 10
    for file, name in named:
        source = (ROOT / file).read_text()
        assert not name or re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{file}::{name}"


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_the_files_that_are_named_exist(document: Path) -> None:
    """Links of the document, and paths of the engine with or without the package's name."""
    text = DOCS[document]
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (document.parent / link).exists(), link
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|md|yml))`", text):
        assert (ROOT / path).exists() or (ROOT / "amqp_streams" / path).exists(), path


def test_the_map_is_the_tree() -> None:
    """Every module of the engine's root, every package in it, and every folder of the repository has its
    line.
    """
    lines = README.split("## The map")[1].split("```")[1].strip("\n").splitlines()
    told = {(line.startswith("  "), line.split()[0].rstrip("/")) for line in lines}
    tracked = [path.split("/") for path in tracked_files()]
    inside = {
        path[1]
        for path in tracked
        if path[0] == "amqp_streams" and (len(path) > 2 or path[1].endswith(".py"))
    } - {"__init__.py"}
    assert {name for nested, name in told if nested} == inside
    assert {name for nested, name in told if not nested} == {
        path[0] for path in tracked if len(path) > 1 and not path[0].startswith(".")
    }


def test_every_command_of_the_makefile_is_told() -> None:
    told = set(re.findall(r"`make ([a-z]+)", README))
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert told <= targets
    assert targets - told <= {"help", "format", "clean"}
