"""A user's links get the rate together, fairly, and nothing is lost by waiting."""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count, cycle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amqp_streams.server.limits.bucket import ACTIVE_MS, BURST_MS, WINDOW_MS, Bucket, Throttle
from tests.properties import examples

RATE = 100_000
CREDIT = 10_000
"""The most credit of a producer, in messages."""


class Clock:
    """A clock and its timers."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def read(self) -> int:
        return self.now_ms

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms > 0
        heappush(self._timers, (self.now_ms + delay_ms, next(self._order), call))

    def run_until(self, end_ms: int) -> None:
        while self._timers and self._timers[0][0] <= end_ms:
            self.now_ms, _, call = heappop(self._timers)
            call()
        self.now_ms = end_ms


class Consumer:
    """A link that wants all that it can get, in messages of one size."""

    def __init__(self, throttle: Throttle, size: int) -> None:
        self.throttle, self.size, self.got = throttle, size, 0

    def go_on(self) -> None:
        while messages := self.throttle.deliveries(self):
            self.got += messages * self.size
            self.throttle.spend(self, messages, messages * self.size)


class Producer:
    """A link that sends as many bytes as it has credit for, as soon as it gets credit."""

    def __init__(self, throttle: Throttle, size: int) -> None:
        self.throttle, self.size, self.sent, self.credit = throttle, size, 0, 0

    def go_on(self) -> None:
        self.credit += self.throttle.credit(self, self.credit, CREDIT)

    def send(self) -> None:
        messages, self.credit = self.credit, 0
        if messages:
            self.sent += messages * self.size
            self.throttle.spend(self, messages, messages * self.size)
            self.go_on()


class DistantProducer:
    """A link that sends for each credit a message, which arrives `round_trip_ms` later. It sends the sizes in
    turn: batches of any size, or single events. As in the node, nothing is read while the debt is too large.
    """

    def __init__(self, throttle: Throttle, clock: Clock, sizes: list[int], round_trip_ms: int) -> None:
        self.throttle, self.clock, self.round_trip_ms = throttle, clock, round_trip_ms
        self.sizes, self.sent, self.credit = cycle(sizes), 0, 0
        self.arrived, self.paused = 0, False

    def go_on(self) -> None:
        more = self.throttle.credit(self, self.credit, CREDIT)
        if more:
            self.credit += more
            self.clock.later(self.round_trip_ms, partial(self._arrive, more))

    def _arrive(self, messages: int) -> None:
        self.arrived += messages
        while self.arrived and not self.paused:
            size = next(self.sizes)
            self.arrived -= 1
            self.credit -= 1
            self.sent += size
            self.throttle.spend(self, 1, size)
            if debt_ms := self.throttle.debt_ms():
                self.paused = True
                self.clock.later(debt_ms, self._resume)
            self.go_on()

    def _resume(self) -> None:
        self.paused = False
        self._arrive(0)


def throttle(clock: Clock, rate: int = RATE) -> Throttle:
    return Throttle(rate, clock.read, clock.later)


# -- the bucket


def test_a_bucket_fills_at_its_rate_up_to_the_burst() -> None:
    bucket = Bucket(RATE, 0)
    assert bucket.level(0) == bucket.capacity == RATE * BURST_MS // 1000
    bucket.spend(3 * RATE)
    assert bucket.level(0) == -2 * RATE
    assert bucket.wait_ms(1, 0) == 2001
    assert bucket.level(1500) == -RATE // 2
    assert bucket.level(99_999) == bucket.capacity
    assert bucket.wait_ms(1, 99_999) == 0


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(RATE, 1000)
    bucket.spend(RATE)
    assert bucket.level(500) == 0
    assert bucket.level(1000) == 0
    assert bucket.level(1010) == RATE // 100


@given(
    st.integers(1000, 10**9), st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10**9)), max_size=20)
)
def test_spending_only_available_tokens_never_exceeds_the_rate(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ms, spent = Bucket(rate, 0), 0, 0
    for passed_ms, wanted in steps:
        now_ms += passed_ms
        taken = min(wanted, bucket.level(now_ms))
        bucket.spend(taken)
        spent += taken
        assert spent <= rate * now_ms / 1000 + bucket.capacity


def test_another_rate_keeps_the_debt_and_cuts_what_was_saved() -> None:
    bucket = Bucket(RATE, 0)
    bucket.change(RATE // 10, 0)
    assert bucket.level(0) == RATE // 10
    bucket.spend(RATE // 2)
    bucket.change(RATE, 0)
    assert bucket.level(0) == RATE // 10 - RATE // 2


# -- links


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=6), st.integers(1, 20))
def test_consumers_get_the_rate_together_and_no_more(sizes: list[int], seconds: int) -> None:
    clock = Clock()
    shared = throttle(clock)
    links = [Consumer(shared, size) for size in sizes]
    for link in links:
        link.go_on()
    clock.run_until(seconds * 1000)
    total = sum(link.got for link in links)
    assert total <= RATE * seconds + RATE * BURST_MS // 1000 + 2 * sum(sizes)
    assert total >= RATE * seconds - RATE // 10


def test_each_link_gets_its_share_whatever_the_size_of_its_messages() -> None:
    clock = Clock()
    shared = throttle(clock)
    links = [Consumer(shared, size) for size in (10, 100, 1000, 1500)]
    clock.run_until(5000)  # before them, another client used up the saved credit
    shared.spend(object.__new__(Consumer), 1, RATE)
    for link in links:
        link.go_on()
    clock.run_until(65_000)
    shares = [link.got / (60 * RATE / len(links)) for link in links]
    assert all(0.8 < share < 1.2 for share in shares), shares


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=6), st.integers(1, 20))
def test_producers_get_credit_for_the_rate_and_bursts_are_bounded(sizes: list[int], seconds: int) -> None:
    """Producers send at once all events that they have credit for."""
    clock = Clock()
    shared = throttle(clock)
    links = [Producer(shared, size) for size in sizes]
    for link in links:
        link.go_on()
    largest = 0
    for now_ms in range(1, seconds * 1000, 5):
        clock.run_until(now_ms)
        before = sum(link.sent for link in links)
        for link in links:
            link.send()
        if now_ms > 1000:  # what was saved up is gone by then
            largest = max(largest, sum(link.sent for link in links) - before)
    total = sum(link.sent for link in links)
    assert total <= RATE * seconds + RATE * (BURST_MS + WINDOW_MS) // 1000 + 2 * sum(sizes)
    assert largest <= RATE * WINDOW_MS // 1000 + 2 * sum(sizes)


@settings(max_examples=examples(50))
@example(5000, [0.3359375, 0.015625], 392, 1, 0)
@example(5000, [0.001, 0.024, 0.001], WINDOW_MS // 2, 1, 0)
@given(
    st.integers(5000, 10**7),
    st.lists(st.floats(0.001, 2), min_size=1, max_size=4),
    st.integers(1, WINDOW_MS // 2),
    st.integers(1, 4),
    st.integers(0, 30),
)
def test_producers_get_at_least_nine_tenths_of_the_rate_at_any_distance(
    rate: int, seconds_worth: list[float], round_trip_ms: int, active: int, silent: int
) -> None:
    """Batches that need two seconds of the rate, and single events; other links of the user are silent."""
    clock = Clock()
    shared = throttle(clock, rate)
    others = [Producer(shared, 1) for _ in range(silent)]
    for other in others:
        other.go_on()
        other.send()
    clock.run_until(2 * ACTIVE_MS)
    sizes = [max(1, int(rate * each)) for each in seconds_worth]
    links = [DistantProducer(shared, clock, sizes, round_trip_ms) for _ in range(active)]
    for link in links:
        link.go_on()
    begin_ms, end_ms = 30_000, 230_000
    clock.run_until(begin_ms)
    before = sum(link.sent for link in links)
    clock.run_until(end_ms)
    got = sum(link.sent for link in links) - before
    wanted = rate * (end_ms - begin_ms) / 1000
    # A message that has arrived in part when the time ends is not in `got`.
    assert 0.9 * wanted - active * max(sizes) <= got <= 1.1 * wanted, got / wanted


def test_a_silent_link_leaves_its_part_of_the_window_to_the_others() -> None:
    clock = Clock()
    shared = throttle(clock)
    links = [DistantProducer(shared, clock, [100], 400) for _ in range(50)]
    for link in links:
        shared.spend(link, 1, 100)
    clock.run_until(2 * ACTIVE_MS)
    links[0].go_on()
    clock.run_until(20_000)
    assert links[0].sent > 0.9 * RATE * 18


def test_a_link_without_a_bound_in_its_way_does_not_wait() -> None:
    clock = Clock()
    shared = throttle(clock)
    link = Consumer(shared, 100)
    shared.spend(link, 10, 1000)
    assert shared.deliveries(link) > 0
    assert (shared.waits, shared.waited_ms) == (0, 0)


def test_waiting_is_counted_and_timed() -> None:
    clock = Clock()
    shared = throttle(clock)
    link = Consumer(shared, RATE)
    link.go_on()
    clock.run_until(600)
    assert shared.waited_ms == 600
    assert shared.deliveries(link) == 0
    assert (
        shared.waits == 2
    )  # for its first message, of which all that was saved is gone, and then for its second


def test_a_link_that_has_ended_delays_no_other() -> None:
    clock = Clock()
    shared = throttle(clock)
    one, other = Consumer(shared, RATE), Consumer(shared, 1000)
    one.go_on()
    other.go_on()
    got = one.got
    shared.leave(one)
    shared.leave(one)
    clock.run_until(10_000)
    assert one.got == got
    assert other.got > 8 * RATE
    assert not shared.idle
    shared.leave(other)
    clock.run_until(20_000)
    assert shared.idle


def test_debt_beyond_the_burst_is_reported() -> None:
    clock = Clock()
    shared = throttle(clock)
    link = Producer(shared, 1)
    shared.spend(link, 1, 2 * RATE)
    assert shared.debt_ms() == 0
    shared.spend(link, 1, RATE)
    assert shared.debt_ms() == 2000


@pytest.mark.parametrize("rate", [RATE * 10, RATE // 10])
def test_another_rate_counts_at_once(rate: int) -> None:
    clock = Clock()
    shared = throttle(clock)
    link = Consumer(shared, 1000)
    link.go_on()
    shared.change(rate)
    before = link.got
    clock.run_until(10_000)
    assert 0.8 * 10 * rate < link.got - before < 1.3 * 10 * rate


def test_a_removed_bound_wakes_the_waiting_caller() -> None:
    clock = Clock()
    shared = throttle(clock)
    told = []

    class Link:
        def go_on(self) -> None:
            told.append(self)

    link = Link()
    shared.spend(link, 1, 10 * RATE)
    assert shared.deliveries(link) == 0
    shared.end()
    assert told == [link]
    clock.run_until(100_000)
    assert told == [link]
