"""Time and calls wait for the test."""

import threading

import pytest

from amqp_streams.testing import ManualClock, ManualLoop


def test_a_clock_does_not_move_by_itself() -> None:
    clock = ManualClock(100)
    assert (clock(), clock.advance(5), clock(), clock.advance(-50)) == (100, 105, 105, 55)


def test_calls_run_in_order_when_the_loop_runs() -> None:
    loop, seen = ManualLoop(), list[int]()
    loop.call(seen.append, 1)
    loop.call(loop.call, seen.append, 2)
    assert seen == []
    assert loop.run_ready() == 3
    assert seen == [1, 2]


def test_a_call_from_another_thread_is_waited_for() -> None:
    loop, seen = ManualLoop(), list[int]()
    threading.Thread(target=loop.call, args=(seen.append, 7)).start()
    loop.run_until(lambda: bool(seen))
    assert seen == [7]


def test_waiting_for_nothing_ends() -> None:
    with pytest.raises(TimeoutError, match="no call came"):
        ManualLoop().run_until(lambda: False, timeout_s=0.01)
