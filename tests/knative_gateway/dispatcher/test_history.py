"""Failures on their way to where they last."""

from collections.abc import Mapping, Sequence

import pytest

from amqp_streams.client import Event
from event_formats.amqp_binding import encode
from event_formats.event import CloudEvent
from knative_gateway.delivery import Attempt
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.history import HISTORY_MAX, RECORDED_AT_ONCE, History, keep
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Failure, Stored
from tests.knative_gateway.dispatcher.rig import event

ARRIVAL = Arrival(Stored(3, "0000000000000007", 5, encode(event(1))), "")


def attempt(number: int, destination: str = "subscriber") -> Attempt:
    return Attempt(
        destination, "http://x/", number, 9, 500, "status 500", "é".encode() * 5000, retryable=True
    )


class Kept:
    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.away = False
        self.sizes: list[int] = []

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        if self.away:
            raise UnavailableError("away")
        self.sizes.append(sum(map(len, failures.values())))
        for each in failures.values():
            self.failures += each


async def test_a_failure_says_what_where_and_why() -> None:
    history, kept = History(), Kept()
    history.note(8, ARRIVAL, attempt(2))
    history.note(8, ARRIVAL, attempt(1, "dead letter sink"), "dropped")
    history.skip(
        8,
        Arrival(
            Stored(3, "0000000000000008", 5, Event(b"", properties={"cloudEvents_id": "9"}).encode()), ""
        ),
    )
    await keep([("u", history)], kept.record)
    first, second, third = kept.failures
    assert (first.at_ms, first.event_id, first.event_source, first.partition, first.offset) == (
        8,
        "1",
        "/s",
        3,
        "0000000000000007",
    )
    assert (first.attempt, first.code, first.reason, first.end, len(first.body)) == (
        2,
        500,
        "status 500",
        "",
        1024,
    )
    assert (second.reason, second.end) == ("dead letter sink http://x/: status 500", "dropped")
    assert (third.reason[:17], third.event_id, third.end, third.code) == (
        "not a CloudEvent:",
        "9",
        "skipped",
        None,
    )


async def test_long_ids_and_sources_are_cut() -> None:
    """A sender may make them as long as an event, and a hundred failures are kept for each subscriber."""
    history, kept = History(), Kept()
    stored = Arrival(
        Stored(
            3,
            "0000000000000007",
            5,
            encode(CloudEvent({**event(1).attributes, "id": "i" * 9000, "source": "s" * 9000})),
        ),
        "",
    )
    history.note(8, stored, attempt(1))
    history.skip(8, stored, "why not")
    await keep([("u", history)], kept.record)
    assert {(len(failure.event_id), len(failure.event_source)) for failure in kept.failures} == {(1024, 1024)}


async def test_outcomes_that_cannot_be_stored_are_kept_in_order() -> None:
    history, kept = History(), Kept()
    kept.away = True
    history.note(1, ARRIVAL, attempt(1))
    with pytest.raises(UnavailableError):
        await keep([("u", history)], kept.record)
    history.note(2, ARRIVAL, attempt(2))
    kept.away = False
    await keep([("u", history)], kept.record)
    await keep([("u", history)], kept.record)
    assert [failure.attempt for failure in kept.failures] == [1, 2]


async def test_the_latest_are_held() -> None:
    history, kept = History(), Kept()
    for number in range(HISTORY_MAX + 5):
        history.note(1, ARRIVAL, attempt(number))
    await keep([("u", history)], kept.record)
    assert [failure.attempt for failure in kept.failures] == list(range(5, HISTORY_MAX + 5))


async def test_of_too_many_that_cannot_be_kept_the_latest_are_held() -> None:
    history, kept = History(), Kept()
    for number in range(HISTORY_MAX):
        history.note(1, ARRIVAL, attempt(number))
    failures = history.take()
    history.note(1, ARRIVAL, attempt(HISTORY_MAX))
    history.give_back(failures)
    await keep([("u", history)], kept.record)
    assert [failure.attempt for failure in kept.failures] == list(range(1, HISTORY_MAX + 1))


async def test_failures_of_many_subscribers_take_few_transactions_of_bounded_size() -> None:
    """One transaction for each would delay all other writers of the state database for seconds."""
    histories, kept = [History() for _ in range(1000)], Kept()
    for history in histories:
        history.note(1, ARRIVAL, attempt(1))
        history.note(1, ARRIVAL, attempt(2))
    await keep(((str(number), history) for number, history in enumerate(histories)), kept.record)
    assert kept.sizes == [RECORDED_AT_ONCE] * (2000 // RECORDED_AT_ONCE)
    assert not any(histories)
