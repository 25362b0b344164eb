"""Transcripts of this engine's own extensions: in memory, over real sockets with clients of other projects,
and in the docs.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from interop.clients import BUILD, RHEA
from tests.scenarios.memory import MemoryStage
from tests.scenarios.playing import Player, transcript
from tests.scenarios.script import Scenario, read
from tests.scenarios.wire import CLIENTS, WireStage, command_of, differences

HERE = Path(__file__).parent
SECTION = read(HERE / "extensions" / "idempotent-producers.txt")
DOCUMENT = HERE.parent.parent / "docs" / "idempotent-producers.md"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


@pytest.mark.parametrize("scenario", SECTION.scenarios, ids=[scenario.name for scenario in SECTION.scenarios])
def test_what_is_written_is_what_happens(scenario: Scenario) -> None:
    told = Player(MemoryStage()).play(scenario)
    if told != [list(step.expected) for step in scenario.steps]:
        pytest.fail(f"it went otherwise:\n\n{transcript(scenario, told)}", pytrace=False)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_that_are_not_ours_are_told_the_same(client: str, tmp_path: Path) -> None:
    if client == "rhea" and (
        shutil.which("node") is None or not (BUILD / f"rhea-{RHEA}" / "node_modules" / "rhea").is_dir()
    ):
        pytest.skip("rhea is not installed here: make scenarios does it")
    with WireStage(command_of(client), tmp_path) as stage:
        wrong = differences(stage, SECTION.scenarios)
    assert not wrong, "\n\n".join(wrong)


def test_the_transcript_that_is_shown_is_one_that_plays() -> None:
    shown = re.findall(r"^```text\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    for block in shown:
        assert block.strip() in SECTION.path.read_text()
