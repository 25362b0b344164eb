"""CONTRIBUTING.md names files that exist, commands that the Makefile has, and the sizes that are checked."""

import re
from pathlib import Path

from tests import test_tidy

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_PATH = re.compile(r"(?<![\w./])(?!I/O|\.venv)(?:[\w.]+/)+(?:[\w.-]*\w)?|\b[A-Za-z_-]+\.(?:md|toml|txt|py)\b")
PATHS = sorted(set(_PATH.findall(TEXT)))


def test_every_path_that_is_named_exists() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


def test_every_command_that_is_named_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        word
        for words in re.findall(r"(?:`|^\$ )make ([a-z ]+)", TEXT, re.MULTILINE)
        for word in words.split()
    }
    assert {"setup", "check", "test", "docs", "reference"} <= named <= targets


def test_the_sizes_are_those_that_are_checked() -> None:
    module, test, function = (
        test_tidy.MODULE_LINES_MAX,
        test_tidy.TEST_LINES_MAX,
        test_tidy.FUNCTION_LINES_MAX,
    )
    assert f"A module has at most {module} lines, a test file {test}, a function {function}." in TEXT
