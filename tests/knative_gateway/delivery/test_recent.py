"""The latest deliveries of a subscriber are known, in a bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery.recent import (
    IDENTITY_MAX,
    RECENT_MAX,
    REPLIES_MAX,
    Delivered,
    Recent,
    Reply,
)

noted = st.tuples(st.integers(0, 1023), st.integers(0, 40), st.integers(1, 1 << 41), st.integers(0, 70_000))


@given(st.lists(noted, max_size=3 * RECENT_MAX))
def test_each_of_the_latest_deliveries_is_found_and_no_other(notes: list[tuple[int, int, int, int]]) -> None:
    recent = Recent()
    for partition, offset, at_ms, took_ms in notes:
        recent.note(partition, f"{offset:016d}", at_ms, took_ms)
    latest: dict[tuple[int, int], Delivered] = {}
    for partition, offset, at_ms, took_ms in notes[-RECENT_MAX:]:
        held = latest.get((partition, offset))
        if held is None or (at_ms, min(took_ms, 65_534)) >= (held.at_ms, held.took_ms or 0):
            latest[partition, offset] = Delivered(at_ms, min(took_ms, 65_534))
    for partition, offset, *_ in notes:
        assert recent.found(partition, f"{offset:016d}") == latest.get((partition, offset))


def test_nothing_is_found_before_the_first_delivery_and_at_offset_0() -> None:
    recent = Recent()
    assert recent.found(0, "0000000000000000") is None
    recent.note(1, "0000000000000000", 5, None)
    assert recent.found(0, "0000000000000000") is None
    assert recent.found(1, "0000000000000000") == Delivered(5, None)


def test_a_number_of_a_partition_that_is_too_large_fails_no_delivery() -> None:
    Recent().note(1 << 40, "0000000000000001", 5, 1)


def test_replies_are_bounded_in_number_and_in_length() -> None:
    recent = Recent()
    for number in range(REPLIES_MAX + 3):
        recent.replied(Reply(0, f"{number:016d}", 1, "i" * 100_000, "s" * 100_000))
    assert recent.reply_to(0, f"{2:016d}") is None
    kept = recent.reply_to(0, f"{3:016d}")
    assert kept is not None
    assert (len(kept.id), len(kept.source)) == (IDENTITY_MAX, IDENTITY_MAX)
    assert len(recent.replies) == REPLIES_MAX
