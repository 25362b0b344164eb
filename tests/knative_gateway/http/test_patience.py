"""How long a connection waits for its client."""

from typing import Any

import pytest

from knative_gateway.http.patience import LINGER_S, STALLED_S, Late, Patience

REQUEST_S, IDLE_S = 30.0, 60.0


def late(patience: Patience, now_s: float, **state: Any) -> Late | None:
    given = {"unsent": None, "is_paused": False, "is_open": False} | state
    return patience.late(now_s, request_s=REQUEST_S, idle_s=IDLE_S, **given)


def test_a_request_must_be_complete_in_time_from_its_first_byte_on() -> None:
    patience = Patience()
    for second in range(31):
        patience.request(1, second)
        assert late(patience, second) is None
    assert late(patience, 30.1) is Late.INCOMPLETE


def test_each_request_has_its_own_time() -> None:
    patience = Patience()
    patience.request(1, 0)
    patience.request(2, 25)
    assert late(patience, 55) is None
    assert late(patience, 55.1) is Late.INCOMPLETE


def test_a_client_has_its_time_again_after_an_idle_time() -> None:
    patience = Patience()
    patience.request(1, 0)
    patience.waiting_since = None
    patience.request(1, 100)
    assert late(patience, 130) is None


def test_an_idle_connection_ends_at_the_second_look_after_its_time() -> None:
    """Between the two looks, a request that is in the socket is read."""
    patience = Patience()
    assert [late(patience, now) for now in (0, 60, 60.1, 60.2)] == [None, None, None, Late.IDLE]


@pytest.mark.parametrize("open_at", [10, 60.1])
def test_an_open_request_begins_the_idle_time_anew(open_at: float) -> None:
    patience = Patience()
    assert late(patience, 0) is None
    assert late(patience, open_at, is_open=True) is None
    assert [late(patience, now) for now in (70, 130, 130.1, 130.2)] == [None, None, None, Late.IDLE]


def test_a_connection_that_the_gateway_does_not_read_waits_without_an_end() -> None:
    patience = Patience()
    patience.request(1, 0)
    assert late(patience, 1_000_000, is_paused=True) is None


def test_a_client_that_reads_slowly_stays() -> None:
    patience = Patience()
    patience.stall(0)
    for step in range(1, 20):
        assert late(patience, step * STALLED_S, unsent=1000 - step) is None


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    patience = Patience()
    patience.stall(0)
    assert late(patience, 1, unsent=1000) is None
    assert late(patience, 1 + STALLED_S, unsent=1000) is None
    assert late(patience, 1.1 + STALLED_S, unsent=1000) is Late.UNREAD


def test_the_buffer_may_grow_again_before_the_client_reads_on() -> None:
    patience = Patience()
    patience.stall(0)
    assert late(patience, 1, unsent=10) is None
    patience.stall(2)
    assert late(patience, 3, unsent=1000) is None
    assert late(patience, 2.9 + STALLED_S, unsent=1000) is None


def test_after_the_last_answer_only_lingering_counts() -> None:
    patience = Patience()
    patience.request(1, 0)
    assert not patience.lingers
    patience.linger(100)
    assert patience.lingers
    assert late(patience, 99.9 + LINGER_S, unsent=5) is None
    assert late(patience, 100 + LINGER_S, unsent=5) is Late.LINGERED
