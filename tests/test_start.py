"""The pages in docs/start: each command and each program runs as it is written, and prints what is shown."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT, Reader, blocks

PAGES: Final = sorted((ROOT / "docs" / "start").glob("*.md"))
LINES_MAX: Final = 125
"""Two screens."""
RUNS: Final = {"console", "text"}
"""Blocks that are not files."""


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_program_works_and_prints_what_is_shown(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    with Reader(text, tmp_path) as reader:
        if missing := reader.missing():
            pytest.skip(f"this machine does not have {' and '.join(missing)}")
        reader.follow()
        for terminal, status in enumerate(reader.leave()):
            assert status in {0, 130, -2}, reader.output_of(terminal)
    assert reader.ran == len(re.findall(r"^ *\$ ", text, re.MULTILINE)) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_each_of_its_programs_is_a_file_that_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("\n") <= LINES_MAX
    programs = [block for block in blocks(text) if block.language not in RUNS]
    assert [block.body for block in programs if block.file is None] == []
    typed = "".join(block.body for block in blocks(text) if block.language == "console")
    assert [block.file for block in programs if not _used(str(block.file), typed)] == []


def _used(file: str, typed: str) -> bool:
    """Whether a command names the file. Go, Maven and npm know the names of theirs."""
    return file in typed or file in {"main.go", "pom.xml"}
