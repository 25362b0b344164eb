"""CONTRIBUTING.md names files that exist and commands that the Makefile has."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"(?<![\w.])(?!I/O)(?:[\w.]+/)+(?:[\w.-]*\w)?|\b[A-Za-z_-]+\.(?:md|toml|txt|py)\b", TEXT)) - {".venv/bin/python"})


def test_every_path_that_is_named_exists() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


def test_every_command_that_is_named_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for words in re.findall(r"(?:`|^\$ )make ([a-z ]+)", TEXT, re.MULTILINE) for word in words.split()}
    assert {"setup", "check", "test", "docs", "reference"} <= named <= targets


def test_the_sizes_are_those_that_are_checked() -> None:
    from tests import test_tidy  # noqa: PLC0415  read only here

    words = f"A module has at most {test_tidy.MODULE_LINES_MAX} lines, a test file {test_tidy.TEST_LINES_MAX}, a function {test_tidy.FUNCTION_LINES_MAX}."
    assert words in TEXT
