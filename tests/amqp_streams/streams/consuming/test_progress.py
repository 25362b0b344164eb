"""A link's progress on a cursor."""

from amqp_streams.streams.consuming.cursors import Cursor, link_key
from amqp_streams.streams.consuming.progress import Progress


def progress(**positions: int) -> Progress:
    held = Progress(
        Cursor(
            link_key("i", "c", "l"), None, {int(index[1:]): position for index, position in positions.items()}
        )
    )
    held.follow(held.cursor.positions)
    return held


def test_the_next_consumer_begins_at_the_lowest_unsettled_event_or_after_the_examined_ones() -> None:
    held = progress(p0=5, p1=7)
    held.trackers[0].sent(5, 3)
    held.trackers[0].settled(5)
    assert dict(held.positions({0: 8, 1: 9})) == {0: 6, 1: 9}
    held.trackers[0].settled(6, 2)
    assert dict(held.positions({0: 8, 1: 9})) == {0: 8, 1: 9}


def test_a_partition_that_is_not_read_any_more_stays_where_its_settlements_leave_it() -> None:
    held = progress(p0=5)
    held.trackers[0].sent(5, 2)
    assert dict(held.positions({})) == {0: 5}
    held.trackers[0].settled(5, 2)
    assert dict(held.positions({})) == {0: 7}


def test_new_partitions_begin_at_the_cursor_and_the_others_continue() -> None:
    held = progress(p0=5)
    held.trackers[0].sent(5, 1)
    held.cursor.positions[1] = 3
    held.follow([0, 1])
    assert dict(held.positions({0: 6, 1: 3})) == {0: 5, 1: 3}
