"""The clock of a measurement runs from the end of the warm-up to the last event, and a failure ends it."""

import pytest

from amqp_streams.cli import measuring
from amqp_streams.cli.connection import Endpoint
from amqp_streams.cli.measuring import (
    Load,
    Measurement,
    measure_consuming,
    measure_latency,
    measure_producing,
)
from amqp_streams.cli.statistics import Latencies
from amqp_streams.client import Event, LinkRefusedError
from tests.amqp_streams.cli.fakes import FakeNode


def a_load(**more: object) -> Load:
    """Ten events of ten bytes."""
    given = {
        "log": "temps",
        "events": 10,
        "size": 10,
        "rate": None,
        "connections": 1,
        "window": 100,
        "warmup": 0,
    }
    return Load(**(given | more))  # type: ignore[arg-type]  # as given


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; set its only item."""
    now = [100.0]
    monkeypatch.setattr("amqp_streams.cli.measuring.time.perf_counter", lambda: now[0])
    return now


def nothing(done: float, *, note: str = "") -> None:
    """Show no progress bar."""


def test_without_a_warm_up_the_clock_starts_at_the_beginning(clock: list[float]) -> None:
    measurement = Measurement(a_load(), nothing)
    measurement.begin()
    clock[0] = 102.0
    measurement.count(10, 100)
    result = measurement.result("produce", Latencies())
    assert (result.events, result.bytes, result.seconds) == (10, 100, 2.0)


def test_events_of_the_warm_up_do_not_count(clock: list[float]) -> None:
    measurement = Measurement(a_load(warmup=5), nothing)
    measurement.begin()
    for second, events in ((101.0, 3), (102.0, 2), (103.0, 4), (106.0, 6)):
        clock[0] = second
        measurement.count(events, events * 10)
    result = measurement.result("produce", Latencies())
    assert (result.events, result.bytes, result.seconds) == (10, 100, 4.0)


def test_progress_shows_the_rate_of_the_last_interval(clock: list[float]) -> None:
    told: list[tuple[float, str]] = []

    def advance(done: float, *, note: str = "") -> None:
        told.append((done, note))

    measurement = Measurement(a_load(), advance)
    for second, events in ((100.0, 1), (100.1, 1), (101.0, 8)):
        clock[0] = second
        measurement.count(events, 0)
    assert told == [(1, "0 events/s"), (10, "9 events/s")]


async def test_a_batch_reports_one_latency_and_all_its_events_arrive(node: FakeNode) -> None:
    result = await measure_producing(Endpoint(), a_load(events=1000, connections=3), nothing)
    assert (result.events, result.bytes, result.refused) == (1000, 10_000, 0)
    assert 1000 / 25 <= result.samples <= 1000
    assert sum(map(len, node.logs["temps"])) == 1000


async def test_a_rate_spaces_the_events(node: FakeNode) -> None:
    result = await measure_producing(Endpoint(), a_load(rate=1000.0), nothing)
    assert result.events == 10
    assert result.seconds >= 0.009


async def test_consuming_stops_at_the_number_asked_for(node: FakeNode) -> None:
    node.logs["temps"] = [[Event(b"x")] * 30]
    result = await measure_consuming(Endpoint(), a_load(events=20, warmup=5), nothing)
    assert result.events == 20
    assert result.bytes > 20


async def test_events_that_never_come_are_reported_as_refused(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node in memory gives nothing to a reader of new events."""
    monkeypatch.setattr(measuring, "_TAIL_S", 0.01)
    result = await measure_latency(Endpoint(), a_load(rate=100_000.0), nothing)
    assert (result.events, result.refused) == (0, 10)


async def test_a_refusal_of_the_node_comes_out_as_it_is(node: FakeNode) -> None:
    with pytest.raises(LinkRefusedError):
        await measure_consuming(Endpoint(), a_load(log="nope"), nothing)
