"""Positions: what the next attach requests, and which events are recognized as already delivered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.consuming.cursor import FILTER_NAME, Cursor
from amqp_streams.client.errors import LinkRefusedError
from amqp_streams.client.options import EARLIEST, LATEST, AfterOffset, AfterTime
from amqp_streams.names import FILTER_DELIVERY_ANNOTATIONS, OFFSET, TIMESTAMP
from amqp_streams.wire.annotations import AnnotationWriter
from amqp_streams.wire.codec import Described, Symbol, Timestamp

BODY = b"\x00\x53\x75\xa0\x01x"


def at(partition: int, number: int) -> bytes:
    return AnnotationWriter(str(partition)).run(number, 1_700_000_000_000, 1)[0] + BODY


def offset(number: int) -> str:
    return f"{number:016d}"


def asked(cursor: Cursor, partitions: tuple[str, ...] = ("0",)) -> object:
    condition = cursor.condition(partitions)
    return None if condition is None else next(iter(condition.values()))


def test_new_events_only_need_no_filter() -> None:
    assert Cursor(LATEST, None).filters(["0", "1"]) == {}


def test_a_start_is_a_filter_as_the_extensions_describe_it() -> None:
    filters = Cursor(AfterOffset(7), None).filters(["0"])
    assert filters == {
        FILTER_NAME: Described(Symbol(FILTER_DELIVERY_ANNOTATIONS), {Symbol(OFFSET): Symbol(offset(7))})
    }
    assert Cursor(AfterTime(5), "0").condition([]) == {Symbol(TIMESTAMP): Timestamp(5)}
    assert asked(Cursor(EARLIEST, "0")) == "@earliest"


def test_a_bound_consumer_continues_after_the_last_event() -> None:
    cursor = Cursor(EARLIEST, "3")
    assert cursor.note([at(3, 5), at(3, 6)]) == []
    assert asked(cursor) == offset(6)
    assert cursor.note([at(3, 7)]) == []
    assert asked(cursor) == offset(7)


def test_several_partitions_continue_from_the_oldest_position_and_drop_repeated_events() -> None:
    cursor = Cursor(EARLIEST, None)
    cursor.note([at(0, 0), at(1, 0), at(0, 1), at(0, 2), at(1, 1)])
    assert asked(cursor, ("0", "1")) == offset(1)
    assert cursor.note([at(0, 2), at(1, 2), at(0, 3)]) == [0]
    assert cursor.after == {"0": 3, "1": 2}


def test_a_partition_that_brought_nothing_yet_keeps_the_start() -> None:
    cursor = Cursor(EARLIEST, None)
    cursor.note([at(0, 9)])
    assert asked(cursor, ("0", "1")) == "@earliest"
    later = Cursor(AfterOffset(4), None)
    later.note([at(0, 9)])
    assert asked(later, ("0", "1")) == offset(4)
    timed = Cursor(AfterTime(99), None)
    timed.note([at(0, 9)])
    assert asked(timed, ("0", "1")) == 99


def test_latest_remembers_where_the_log_ended() -> None:
    cursor = Cursor(LATEST, None)
    cursor.anchor({"0": 5, "1": None})
    assert cursor.after == {"0": 5}
    assert asked(cursor, ("0", "1")) == "@earliest"
    cursor.note([at(1, 0), at(1, 8)])
    assert asked(cursor, ("0", "1")) == offset(5)
    assert cursor.note([at(0, 5), at(1, 8), at(0, 6)]) == [0, 1]


def test_a_redelivered_event_does_not_turn_the_position_back() -> None:
    cursor = Cursor(EARLIEST, "0", redelivers=True)
    cursor.note([at(0, 5), at(0, 6), at(0, 2)])
    assert asked(cursor) == offset(6)


@pytest.mark.parametrize("count", [0, 2])
def test_the_last_event_of_each_partition_counts_at_any_position_in_a_batch(count: int) -> None:
    cursor = Cursor(EARLIEST, None)
    cursor.partition_count = count
    cursor.note([at(0, 1), at(1, 1), at(1, 2), at(1, 3), at(1, 4)])
    assert cursor.after == {"0": 1, "1": 4}


def test_an_event_released_and_brought_again_on_the_same_link_is_not_dropped() -> None:
    cursor = Cursor(EARLIEST, None, redelivers=True)
    cursor.note([at(0, 0), at(0, 1), at(0, 2)])
    cursor.filters(["0"])
    assert cursor.note([at(0, 2), at(0, 3)]) == [0]
    assert cursor.note([at(0, 3)]) == []


def test_a_recreated_log_is_read_from_its_beginning() -> None:
    cursor = Cursor(AfterOffset(100), None)
    assert not cursor.other_log("a")
    cursor.note([at(0, 150)])
    assert not cursor.other_log(None)
    assert not cursor.other_log("a")
    assert cursor.other_log("b")
    assert asked(cursor) == "@earliest"
    assert not cursor.other_log("b")


def test_a_log_is_known_by_its_store_on_each_of_its_nodes() -> None:
    cursor = Cursor(EARLIEST, None)
    assert not cursor.other_log("a", "node 1", "s")
    cursor.note([at(0, 150)])
    assert not cursor.other_log("a", "node 2", "s")
    assert cursor.other_log("b", "node 3", "s"), "recreated while the client changed its node"
    cursor.note([at(0, 3)])
    assert not cursor.other_log("b", "node 1", "s"), "which had the log before"
    assert cursor.other_log("c", "node 1", "another"), "the node was replaced"


def test_a_log_of_another_container_is_refused_unless_the_node_redirected_to_it() -> None:
    cursor = Cursor(EARLIEST, None)
    assert not cursor.other_log("a", "node 1")
    assert not cursor.other_log("b", "node 2"), "no event was received yet"
    cursor.note([at(0, 150)])
    assert not cursor.other_log("c", "node 3", redirected=True)
    with pytest.raises(LinkRefusedError, match=r"'node 4' is not the log that was read: .* is d, expected"):
        cursor.other_log("d", "node 4", "s")
    assert not cursor.other_log("b", "node 5"), "the same log"
    assert not cursor.other_log("c", "node 3"), "the node that was redirected to is now asked directly"


def test_messages_of_a_peer_that_is_not_a_log_are_accepted() -> None:
    for partition in (None, "0"):
        cursor = Cursor(LATEST, partition)
        assert cursor.note([BODY, BODY]) == []
        assert cursor.filters([]) == {}


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20), max_size=8))
def test_through_any_losses_each_event_is_taken_once_and_in_order(
    lives: list[list[tuple[int, bool]]],
) -> None:
    """A log of four partitions. Each link of the sequence delivers events from where the cursor requested
    them, interleaved in any order.
    """
    log = {partition: list(range(30)) for partition in range(4)}
    cursor = Cursor(EARLIEST, None)
    taken: dict[int, list[int]] = {partition: [] for partition in log}
    for life in lives:
        start = asked(cursor, ("0", "1", "2", "3"))
        after = -1 if start == "@earliest" else int(str(start))
        nexts = dict.fromkeys(log, after + 1)
        for partition, _ in life:
            number = nexts[partition]
            if number >= 30:
                continue
            nexts[partition] += 1
            if cursor.note([at(partition, number)]) == []:
                taken[partition].append(number)
    assert all(numbers == list(range(len(numbers))) for numbers in taken.values())
