"""What moving a cursor does."""

from amqp_streams.client import CursorPosition, PartitionExtent
from web_console.showing.moves import Move, moves

EXTENTS = [PartitionExtent(name, 10, 50, 0, None, None, "open") for name in "012"]


def test_a_move_on_skips_and_a_move_back_repeats() -> None:
    positions = [CursorPosition("0", next_number=20), CursorPosition("1", next_number=40)]
    assert moves(positions, EXTENTS, {"0": 30, "1": 30}) == [
        Move("0", 20, 30, 10, 0),
        Move("1", 40, 30, 0, 10),
    ]


def test_events_that_retention_has_deleted_do_not_count() -> None:
    positions = [CursorPosition("0", next_number=3)]
    assert moves(positions, EXTENTS, {"0": 0}) == [Move("0", 3, 10, 0, 0)]
    assert moves(positions, EXTENTS, {"0": 99}) == [Move("0", 3, 50, 40, 0)]


def test_a_partition_without_a_position_begins_at_the_earliest_event() -> None:
    assert moves([CursorPosition("2")], EXTENTS, {"2": 15}) == [Move("2", None, 15, 5, 0)]
