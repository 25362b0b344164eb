"""Partitions of which a transaction holds back events: which are named, and when."""

import logging

import pytest

from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.held_back import HELD_BACK_S, HeldBack

PLACE, OTHER = Place("t", 0), Place("t", 1)


def look(held: HeldBack, now_s: float, ends: dict[Place, int], written: dict[Place, int]) -> int:
    held.looked({place: Extent(0, end) for place, end in ends.items()}, written, now_s)
    return held.count


def test_what_is_held_back_for_a_minute_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    held = HeldBack()
    assert look(held, 0, {PLACE: 5, OTHER: 9}, {PLACE: 7, OTHER: 9}) == 0
    # Not each look asks how far was written.
    assert look(held, HELD_BACK_S - 1, {PLACE: 5, OTHER: 9}, {}) == 0
    assert look(held, HELD_BACK_S, {PLACE: 5, OTHER: 9}, {}) == 1
    assert look(held, HELD_BACK_S + 1, {PLACE: 5, OTHER: 9}, {PLACE: 8}) == 1
    assert caplog.messages == ["kafka_held_back topic=t partition=0 offset=5 seconds=60"]
    assert look(held, HELD_BACK_S + 2, {PLACE: 8, OTHER: 9}, {}) == 0
    assert caplog.messages[1:] == ["kafka_held_back_no_more topic=t partition=0"]


def test_one_short_transaction_after_another_is_not_named() -> None:
    held = HeldBack()
    for now_s in range(int(3 * HELD_BACK_S)):
        assert look(held, now_s, {PLACE: now_s}, {PLACE: now_s + 5}) == 0


@pytest.mark.parametrize("ends", [{}, {OTHER: 9}])
def test_a_partition_that_is_gone_or_away_is_not_named(ends: dict[Place, int]) -> None:
    held = HeldBack()
    look(held, 0, {PLACE: 5}, {PLACE: 7})
    assert look(held, HELD_BACK_S, {PLACE: 5}, {}) == 1
    assert look(held, HELD_BACK_S + 1, ends, {}) == 0
    assert look(held, HELD_BACK_S + 2, {PLACE: 5}, {PLACE: 7}) == 0
