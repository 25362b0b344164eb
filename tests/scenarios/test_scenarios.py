"""The transcripts have the results that they show: in memory here, over the wire with `make scenarios`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.scenarios.memory import MemoryStage
from tests.scenarios.page import DOCUMENT, document
from tests.scenarios.playing import Player, transcript
from tests.scenarios.script import Scenario, read, sections, written
from tests.scenarios.telling import Teller

PARAGRAPHS = {
    "4": 11, "4.1": 4, "4.2": 2, "4.3": 4, "4.4": 2, "4.5": 8, "4.5.1": 4, "4.5.2": 6,
    "4.6.1": 3, "4.6.2": 3, "4.6.3": 2, "4.6.4": 3, "4.6.5": 3, "4.6.6": 3, "4.6.7": 3,
    "5": 1, "5.1": 2, "5.1.1": 4, "5.1.2": 3, "5.2": 3, "5.2.1": 3, "5.2.2": 3,
}  # fmt: skip
"""The paragraphs of each section of the specification (the editors' text). Lists and grammars count as parts
of their paragraph.
"""
SCENARIOS = [scenario for section in sections() for scenario in section.scenarios]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def play(scenario: Scenario) -> None:
    told = Player(MemoryStage()).play(scenario)
    if told != [list(step.expected) for step in scenario.steps]:
        pytest.fail(f"it went otherwise:\n\n{transcript(scenario, told)}", pytrace=False)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_what_is_written_is_what_happens(scenario: Scenario) -> None:
    play(scenario)


def test_every_paragraph_has_its_scenario() -> None:
    shown = {
        section.number: [int(each) for one in section.scenarios for each in one.paragraphs.split(",")]
        for section in sections()
    }
    assert shown == {number: list(range(1, count + 1)) for number, count in PARAGRAPHS.items()}


def test_every_scenario_shows_something() -> None:
    assert [
        scenario.name for scenario in SCENARIOS if not any(step.expected for step in scenario.steps)
    ] == []


def test_the_page_is_made_of_the_files() -> None:
    """If the test fails, run `python -m tests.scenarios docs`."""
    assert DOCUMENT.read_text() == document(sections())


def test_a_file_is_written_as_it_was_read() -> None:
    for section in sections():
        assert (
            written(
                section, [[list(step.expected) for step in scenario.steps] for scenario in section.scenarios]
            )
            == section.path.read_text()
        )


def test_a_scenario_that_goes_otherwise_fails_and_shows_how(tmp_path: Path) -> None:
    (tmp_path / "4.txt").write_text(
        "# 4 X\n\n== 1 Y\n\nnode temps:1\n\nattach c consumer temps\n----\nc attached, partition 0\n"
    )
    (scenario,) = read(tmp_path / "4.txt").scenarios
    with pytest.raises(pytest.fail.Exception, match="- c attached, partition 0\n\\+ c attached"):
        play(scenario)


def test_lines_do_not_depend_on_the_order_in_which_links_tell() -> None:
    first: dict[str, Any] = {"event": "attached", "link": "a", "terminus": True, "properties": {}}
    second: dict[str, Any] = {"event": "detached", "link": "b", "condition": "amqp:link:stolen", "info": {}}
    for client_events in ([first, second], [second, first]):
        teller = Teller()
        teller.attaching("b")
        teller.attaching("a")
        assert teller.lines(client_events) == ["b closed amqp:link:stolen", "a attached"]
