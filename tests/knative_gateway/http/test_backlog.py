"""Turns of connections with many requests, with a clock and an event loop of the test's own."""

from collections.abc import Callable

import pytest

from knative_gateway.http.backlog import TURN_S, TURNS_MAX, Backlog
from tests.knative_gateway.http.wire import Wire

GET = b"GET /g HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000


class Iterations:
    """An event loop: `run` is one iteration."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.now = 0.0

    def later(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    def backlog(self) -> Backlog:
        return Backlog(self.later, lambda: self.now)


class Busy:
    """A connection with that many requests, each of which takes `cost_s`."""

    def __init__(self, loop: Iterations, backlog: Backlog, requests: int, cost_s: float) -> None:
        self.loop, self.backlog, self.left, self.cost_s = loop, backlog, requests, cost_s
        backlog.add(self)

    def turn(self) -> None:
        self.loop.now += self.cost_s
        self.left -= 1
        if self.left:
            self.backlog.add(self)


@pytest.mark.parametrize("connections", [1, 100])
def test_however_many_connections_there_are_they_share_one_short_time_of_an_iteration(
    connections: int,
) -> None:
    loop = Iterations()
    backlog = loop.backlog()
    all_ = [Busy(loop, backlog, 200, TURN_S / 4) for _ in range(connections)]
    assert len(loop.calls) == 1
    loop.run()
    assert sum(200 - each.left for each in all_) == 4
    assert len(loop.calls) == 1, "the others have their turns in the next iteration"


def test_requests_that_cost_nothing_at_first_are_bounded_by_their_number() -> None:
    loop = Iterations()
    backlog = loop.backlog()
    all_ = [Busy(loop, backlog, 2, 0.0) for _ in range(100)]
    loop.run()
    assert sum(2 - each.left for each in all_) == TURNS_MAX


def test_connections_take_turns() -> None:
    loop = Iterations()
    backlog = loop.backlog()
    many, few = Busy(loop, backlog, 100, TURN_S), Busy(loop, backlog, 1, TURN_S)
    loop.run()
    loop.run()
    assert (many.left, few.left) == (99, 0)


def test_all_is_done_at_the_end_and_nothing_is_called_any_more() -> None:
    loop = Iterations()
    backlog = loop.backlog()
    one, other = Busy(loop, backlog, 3, 0.0), Busy(loop, backlog, 5, TURN_S)
    backlog.add(one)
    while loop.calls:
        loop.run()
    assert (one.left, other.left) == (0, 0)


def test_a_connection_that_breaks_ends_no_turn_of_another() -> None:
    loop = Iterations()
    backlog = loop.backlog()

    class Broken:
        def turn(self) -> None:
            raise ZeroDivisionError

    backlog.add(Broken())
    other = Busy(loop, backlog, 1, 0.0)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.run()
    assert other.left == 0


def test_a_client_that_sends_many_requests_at_once_has_one_of_them_answered_before_others_are_served() -> (
    None
):
    """Also a request that is refused costs time of all."""
    wire = Wire()
    wire.connection.data_received(GET * 5000)
    assert len(wire.handlers) == 1
    assert wire.transport.is_paused
    wire.due.pop(0)()
    assert len(wire.handlers) <= 1 + TURNS_MAX
    assert wire.due, "the others have their turns in later iterations"
    wire.run()
    assert len(wire.handlers) == 5000
    assert not wire.transport.is_paused


def test_requests_in_separate_reads_need_no_turn() -> None:
    wire = Wire()
    for number in range(10):
        wire.connection.data_received(GET)
        assert len(wire.handlers) == number + 1
    wire.connection.data_received(LARGE)
    assert wire.handlers[-1].exchange.is_answered
    assert not wire.due


def test_a_client_that_is_gone_has_no_further_turn() -> None:
    wire = Wire()
    wire.connection.data_received(GET * 100)
    wire.connection.connection_lost(None)
    wire.run()
    assert len(wire.handlers) == 1
