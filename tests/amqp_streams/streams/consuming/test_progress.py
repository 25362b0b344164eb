"""A link's progress on a cursor."""

from amqp_streams.streams.consuming.cursors import Cursor, link_key
from amqp_streams.streams.consuming.progress import Progress


def progress(**positions: int) -> Progress:
    return Progress(
        Cursor(
            link_key("i", "c", "l"), None, {int(index[1:]): position for index, position in positions.items()}
        )
    )


def test_the_next_consumer_begins_at_the_lowest_unsettled_event_or_after_the_examined_ones() -> None:
    held = progress(p0=5, p1=7)
    held.sent(0, 5, 3)
    held.settled(0, 5)
    assert dict(held.moved([(0, 8), (1, 9)])) == {0: 6, 1: 9}
    held.settled(0, 6, 2)
    assert dict(held.moved([(0, 8), (1, 9)])) == {0: 8, 1: 9}


def test_a_partition_that_is_not_read_any_more_stays_where_its_settlements_leave_it() -> None:
    held = progress(p0=5)
    held.sent(0, 5, 2)
    assert dict(held.moved([])) == {0: 5}
    held.settled(0, 5, 2)
    assert dict(held.moved([])) == {0: 7}


def test_new_partitions_begin_at_the_cursor_and_the_others_continue() -> None:
    held = progress(p0=5)
    held.sent(0, 5, 1)
    held.cursor.positions[1] = 3
    held.sent(1, 3, 1)
    assert dict(held.moved([(0, 6), (1, 4)])) == {0: 5, 1: 3}


def test_a_partition_of_which_no_record_was_sent_costs_no_object() -> None:
    held = progress(**{f"p{index}": 5 for index in range(1024)})
    assert dict(held.moved([(7, 9)])) == {7: 9}
    held.settled(8, 5)
    assert not held.trackers
    held.sent(7, 9, 1)
    assert list(held.trackers) == [7]


def test_a_cursor_that_no_other_link_has_advances_and_never_falls() -> None:
    held = progress(p0=5, p1=7)
    held.sent(0, 5, 2)
    held.settled(0, 5)
    assert held.advance([(0, 7), (1, 9)]) == {0: 6, 1: 9}
    assert held.advance([(1, 8)]) == {0: 6, 1: 9}
    assert held.cursor.positions == {0: 6, 1: 9}
