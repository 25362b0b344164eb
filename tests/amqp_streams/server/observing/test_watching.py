"""A full disk, a commit that does not end and a wrong clock are reported when they begin and when they end,
and not in between.
"""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from amqp_streams.server.observing.watching import COMMIT_STUCK_MS, LOGS_NAMED_MAX, StoreWatch, hindrance
from amqp_streams.storage.ports import StoreFacts


def seen(watch: StoreWatch, facts: StoreFacts, clock_ahead_ms: int = 0) -> list[str]:
    with capture_logs() as lines:
        watch.look(facts, clock_ahead_ms)
        watch.look(facts, clock_ahead_ms)
    return [line["event"] for line in lines]


@pytest.mark.parametrize(
    ("facts", "clock_ahead_ms", "begins", "ends"),
    [
        (StoreFacts(full="the disk is full"), 0, "disk_full", "disk_has_room"),
        (StoreFacts(commit_ms=COMMIT_STUCK_MS), 0, "commit_stuck", "commit_ended"),
        (StoreFacts(), 100_000, "clock_jumped", "clock_trusted"),
    ],
)
def test_each_change_is_one_line(facts: StoreFacts, clock_ahead_ms: int, begins: str, ends: str) -> None:
    watch = StoreWatch()
    assert seen(watch, StoreFacts()) == []
    assert seen(watch, facts, clock_ahead_ms) == [begins]
    assert seen(watch, StoreFacts()) == [ends]


def test_logs_whose_timestamps_are_ahead_are_named_once_and_not_all() -> None:
    watch = StoreWatch()
    assert seen(watch, StoreFacts(ahead_ms={"a": 100_000})) == ["timestamps_ahead"]
    assert seen(watch, StoreFacts(ahead_ms={"a": 90_000, "b": 100_000})) == ["timestamps_ahead"]
    assert seen(watch, StoreFacts()) == []
    many = StoreFacts(ahead_ms={f"log-{number}": 100_000 for number in range(LOGS_NAMED_MAX + 5)})
    assert len(seen(watch, many)) == LOGS_NAMED_MAX


@pytest.mark.parametrize(
    ("facts", "right"),
    [
        (StoreFacts(), lambda words: words is None),
        (StoreFacts(full="the disk is full"), lambda words: words == "the disk is full"),
        (StoreFacts(commit_ms=12_345), lambda words: "12 seconds" in words),
    ],
)
def test_a_failure_of_the_store_is_reported(facts: StoreFacts, right: Callable[[str | None], bool]) -> None:
    assert right(hindrance(facts))
