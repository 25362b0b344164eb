"""docs/tutorial.md: each command runs as it is written, and prints what the page shows."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT, Reader

PAGE: Final = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_works_and_prints_what_is_shown(tmp_path: Path) -> None:
    with Reader(PAGE, tmp_path) as reader:
        reader.follow()
        statuses = reader.leave()
    assert statuses[:2] == [0, 0], "the node and the gateway end well"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".output") == ["examples"], (
        "it is cleaned up"
    )
    assert reader.ran == len(re.findall(r"^ *\$ ", PAGE, re.MULTILINE)) >= 15
