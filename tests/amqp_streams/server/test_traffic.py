"""Sums and rates of one connection, from the counters of its links."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.server.links.link import IncomingLink, OutgoingLink
from amqp_streams.server.traffic import SAMPLE_MS, Totals, Traffic

links = st.lists(st.tuples(st.booleans(), st.integers(0, 100), st.integers(0, 1 << 30)), max_size=5)


def made(incoming: bool, events: int, size: int) -> Any:
    link = object.__new__(IncomingLink if incoming else _Outgoing)
    link.events, link.bytes = events, size
    return link


class _Outgoing(OutgoingLink[Any]):
    def pump(self) -> None:
        pass


@given(links, links)
def test_totals_are_the_sums_of_present_and_ended_links(
    ended: list[tuple[bool, int, int]], present: list[tuple[bool, int, int]]
) -> None:
    traffic = Traffic(0)
    for each in ended:
        traffic.add(made(*each))
    found = traffic.totals([made(*each) for each in present])
    # A link without events has no bytes.
    counted = [each for each in ended if each[1]] + present
    expected = [
        sum(events for is_in, events, _ in counted if is_in is incoming)
        if field == "events"
        else sum(size for is_in, _, size in counted if is_in is incoming)
        for incoming in (True, False)
        for field in ("events", "bytes")
    ]
    assert list(found) == expected


def test_a_rate_covers_one_to_two_samples() -> None:
    traffic, link = Traffic(0), made(True, 0, 0)
    for second in range(1, 31):
        link.events += 10
        link.bytes += 1000
        now_ms = 1000 * second
        if now_ms >= traffic.due_ms:
            traffic.sample([link], now_ms)
        rates = traffic.rates(traffic.totals([link]), now_ms)
        assert (rates.events_in, rates.bytes_in, rates.events_out) == (10.0, 1000.0, 0.0)
    for second in range(31, 41):
        now_ms = 1000 * second
        if now_ms >= traffic.due_ms:
            traffic.sample([link], now_ms)
    assert traffic.rates(traffic.totals([link]), 40_000).events_in == 0
    assert traffic.due_ms == 40_000 + SAMPLE_MS


def test_a_rate_at_the_first_moment_is_no_division_by_zero() -> None:
    traffic = Traffic(7)
    assert traffic.rates(Totals(), 7) == (0.0, 0.0, 0.0, 0.0)
