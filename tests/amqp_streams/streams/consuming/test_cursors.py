"""Cursors are found again by their owners, only move forward, and return from the states as last written."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.consuming.cursors import (
    NAME_CHARACTERS_MAX,
    PREFIX,
    Cursor,
    CursorKey,
    Cursors,
    decoded,
    encoded,
    group_key,
    link_key,
)
from amqp_streams.testing.memory_states import MemoryStates

NOW = 1_700_000_000_000


@dataclass
class Ending:
    """A partition as far as cursors see it."""

    index: int
    end: int = 100


def partitions(*ends: int) -> list[Partition]:
    # Cursors ask for no more.
    return [Ending(index, end) for index, end in enumerate(ends)]  # type: ignore[misc]


def at_end(partition: Partition) -> int:
    return partition.end


def attached(cursors: Cursors, key: CursorKey, *ends: int, user: str | None = None) -> Cursor:
    return cursors.attach(key, user, partitions(*ends), at_end)[0]


def test_a_new_cursor_begins_where_the_filters_say_and_is_to_be_written() -> None:
    cursors = Cursors()
    cursor, changes = cursors.attach(
        link_key("i", "c", "l"), "ann", partitions(10, 20), lambda partition: partition.end - 3
    )
    assert cursor.positions == {0: 7, 1: 17}
    assert (cursor.user, len(cursors)) == ("ann", 1)
    assert list(changes) == [cursor.key.state]
    assert cursors.find(cursor.key) is cursor
    assert not cursors.take_moved(NOW)


def test_an_attach_continues_where_the_last_one_stopped_whatever_its_filters() -> None:
    cursors = Cursors()
    first = attached(cursors, link_key("i", "c", "l"), 10)
    cursors.safe(first, partitions(10))
    cursors.advance(first, 0, 12)
    again, changes = cursors.attach(link_key("i", "c", "l"), None, partitions(50), at_end)
    assert again is first
    assert again.positions == {0: 12}
    assert not changes, "nothing is new"


def test_a_cursor_that_is_not_on_the_disk_yet_is_written_for_whoever_comes_next_too() -> None:
    """A reader that gets events from a cursor that a crash forgets could miss the events in between."""
    cursors = Cursors()
    key, (first, second) = link_key("i", "c", "l"), partitions(10, 20)
    cursor, changes = cursors.attach(key, None, [first, second], at_end)
    assert cursors.attach(key, None, [second], at_end)[1] == changes
    cursors.safe(cursor, [first])
    assert not cursors.attach(key, None, [first], at_end)[1]
    assert cursors.attach(key, None, [first, second], at_end)[1]
    cursors.safe(cursor, [second])
    assert not cursors.attach(key, None, [first, second], at_end)[1]


def test_members_of_a_group_share_its_cursor_and_each_partition_begins_once() -> None:
    cursors = Cursors()
    attached(cursors, group_key("i", "g"), 10)
    cursor, changes = cursors.attach(group_key("i", "g"), None, partitions(40, 50), at_end)
    assert cursor.positions == {0: 10, 1: 50}
    assert changes


def test_a_position_beyond_the_end_goes_back_to_it() -> None:
    """A log that lost unsynced events gives their numbers again: the events that get them must not be
    skipped.
    """
    cursors = Cursors()
    cursor = attached(cursors, link_key("i", "c", "l"), 10)
    _, changes = cursors.attach(cursor.key, None, partitions(4), at_end)
    assert cursor.positions == {0: 4}
    assert changes


def test_a_cursor_never_goes_back_but_by_a_reset() -> None:
    cursors = Cursors()
    cursor = attached(cursors, link_key("i", "c", "l"), 10)
    cursors.advance(cursor, 0, 9)
    assert cursor.positions == {0: 10}
    assert not cursors.take_moved(NOW)
    cursors.reset(cursor, {0: 2})
    assert cursor.positions == {0: 2}
    assert cursors.take_moved(NOW)


def test_moved_cursors_are_written_once_and_together_with_the_time() -> None:
    cursors = Cursors()
    one, two = (attached(cursors, group_key("i", group), 10) for group in "gh")
    for position in (11, 12):
        cursors.advance(one, 0, position)
        cursors.advance(two, 0, position)
    changes = cursors.take_moved(NOW)
    assert set(changes) == {one.key.state, two.key.state}
    assert (one.updated_ms, two.updated_ms) == (NOW, NOW)
    assert not cursors.take_moved(NOW + 1)


def test_another_users_cursor_is_refused_and_untouched() -> None:
    cursors = Cursors()
    cursor = attached(cursors, link_key("i", "c", "l"), 10, user="ann")
    attached(cursors, group_key("i", "g"), 10)
    for key in (cursor.key, group_key("i", "g")):
        with pytest.raises(PeerError, match="another user") as refusal:
            attached(cursors, key, 10, 20, user="bob")
        assert refusal.value.condition == names.UNAUTHORIZED_ACCESS
    assert cursor.positions == {0: 10}
    cursors.check_user(link_key("i", "c", "unknown"), "bob")


def test_cursors_never_exceed_the_limit() -> None:
    cursors = Cursors(cursors_max=2)
    for link in "ab":
        attached(cursors, link_key("i", "c", link), 10)
    with pytest.raises(PeerError, match="'cursors'") as refusal:
        attached(cursors, link_key("i", "c", "x"), 10)
    assert refusal.value.condition == names.RESOURCE_LIMIT_EXCEEDED
    attached(cursors, link_key("i", "c", "a"), 10)
    cursors.remove(cursors.of_log("i")[:1])
    attached(cursors, link_key("i", "c", "x"), 10)


def test_the_positions_of_all_cursors_together_are_bounded() -> None:
    cursors = Cursors(positions_max=5)
    wide = attached(cursors, group_key("i", "wide"), 1, 2, 3)
    attached(cursors, group_key("i", "wide"), 1, 2, 3)
    with pytest.raises(PeerError, match="'cursor_positions'") as refusal:
        attached(cursors, group_key("i", "other"), 1, 2, 3)
    assert refusal.value.condition == names.RESOURCE_LIMIT_EXCEEDED
    assert (len(cursors), cursors.uses()["cursor_positions"].used) == (1, 3), (
        "nothing is left of what was refused"
    )
    attached(cursors, group_key("i", "other"), 1, 2)
    cursors.remove([wide])
    assert cursors.uses()["cursor_positions"].used == 2
    attached(cursors, group_key("i", "more"), 1, 2, 3)


def test_a_cursor_is_found_by_its_id_in_its_log_only() -> None:
    cursors = Cursors()
    cursor = attached(cursors, group_key("i", "g"), 1)
    assert cursors.by_id("i", cursor.id) is cursor
    assert cursors.by_id("j", cursor.id) is None
    cursors.remove([cursor])
    assert cursors.by_id("i", cursor.id) is None


@pytest.mark.parametrize(
    ("container", "link"), [("", "l"), ("c", ""), ("c" * (NAME_CHARACTERS_MAX + 1), "l"), ("c", "l" * 5000)]
)
def test_a_cursor_is_kept_only_under_distinct_names_that_can_be_stored(container: str, link: str) -> None:
    with pytest.raises(PeerError) as refusal:
        link_key("i", container, link)
    assert refusal.value.condition == names.INVALID_FIELD


def test_names_that_look_alike_make_different_keys() -> None:
    keys = [
        link_key("i", "a", "b"),
        link_key("i", "ab", "c"),
        link_key("i", "a", "bc"),
        link_key("j", "a", "b"),
        group_key("i", "a"),
    ]
    assert len({key.state for key in keys}) == len(keys)


def test_removed_cursors_and_those_of_deleted_logs_are_forgotten() -> None:
    cursors = Cursors()
    kept, removed, lost = (
        attached(cursors, link_key(incarnation, "c", link), 1) for incarnation, link in ("ia", "ib", "ja")
    )
    cursors.reset(removed, {0: 0})
    assert cursors.remove([removed]) == {removed.key.state: None}
    assert cursors.remove([removed]) == {}
    assert cursors.remove(cursors.of_log("j")) == {lost.key.state: None}
    assert not cursors.take_moved(NOW), "what is gone is not written"
    assert cursors.of_log("i") == [kept]


def test_a_logs_cursors_are_listed_groups_first_each_by_name() -> None:
    cursors = Cursors()
    for key in (
        link_key("i", "b", "x"),
        group_key("i", "h"),
        link_key("i", "a", "z"),
        link_key("i", "a", "y"),
        group_key("i", "g"),
    ):
        attached(cursors, key, 1)
    attached(cursors, group_key("j", "g"), 1)
    listed = [(each.key.group, each.key.container, each.key.link) for each in cursors.of_log("i")]
    assert listed == [
        ("g", None, None),
        ("h", None, None),
        (None, "a", "y"),
        (None, "a", "z"),
        (None, "b", "x"),
    ]
    assert len({cursor.id for cursor in cursors.of_log("i")}) == 5


def test_a_cursor_reads_in_the_states_as_the_formats_document_says() -> None:
    cursor = Cursor(link_key("i", "c", "l"), "ann", {1: 5, 0: 7}, NOW)
    assert (
        encoded(cursor)
        == b'{"v":1,"container":"c","link":"l","user":"ann","at":1700000000000,"next":{"0":7,"1":5}}'
    )
    assert cursor.key.state == f"cursor/i/{cursor.id}"
    group = Cursor(group_key("i", "g"), None)
    assert encoded(group) == b'{"v":1,"group":"g","user":null,"at":0,"next":{}}'


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":2,"group":"g","user":null,"at":0,"next":{}}',
        b"{}",
        b"\xff",
        b"[]",
        b'{"v":1,"user":null,"at":0,"next":[]}',
    ],
)
def test_a_state_of_a_later_version_is_not_interpreted(value: bytes) -> None:
    with pytest.raises(StorageError, match="start the version that wrote it"):
        decoded("cursor/i/0", value)


class OverRestarts(RuleBasedStateMachine):
    """Cursors over states that a crash resets to the durable ones: they return as of the last successful
    write.
    """

    @initialize()
    def begin(self) -> None:
        self.states = MemoryStates()
        self.cursors = Cursors()
        self.flushed: dict[str, dict[int, int]] = {}

    keys = st.one_of(
        st.builds(group_key, st.sampled_from("ij"), st.text(max_size=3)),
        st.builds(
            link_key, st.sampled_from("ij"), st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3)
        ),
    )

    @rule(key=keys, ends=st.lists(st.integers(0, 50), max_size=3))
    def attach(self, key: CursorKey, ends: list[int]) -> None:
        _, changes = self.cursors.attach(key, None, partitions(*ends), at_end)
        self.write(changes)

    @precondition(lambda self: len(self.cursors) > 0)
    @rule(data=st.data(), by=st.integers(-3, 10))
    def advance(self, data: st.DataObject, by: int) -> None:
        cursor = data.draw(st.sampled_from([*self.cursors.of_log("i"), *self.cursors.of_log("j")]))
        for partition, position in list(cursor.positions.items()):
            self.cursors.advance(cursor, partition, position + by)
            assert cursor.positions[partition] == position + max(0, by)

    @precondition(lambda self: len(self.cursors) > 0)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.write(
            self.cursors.remove(
                [data.draw(st.sampled_from([*self.cursors.of_log("i"), *self.cursors.of_log("j")]))]
            )
        )

    @rule()
    def flush(self) -> None:
        self.write(self.cursors.take_moved(NOW))
        self.states.complete()
        self.flushed = self.positions()

    @rule()
    def crash(self) -> None:
        self.states = self.states.survivors()
        self.cursors = Cursors(self.states.items(PREFIX))
        assert self.positions() == self.flushed

    @rule(gone=st.sampled_from("ij"))
    def delete_a_log(self, gone: str) -> None:
        self.write(self.cursors.remove(self.cursors.of_log(gone)))
        assert not self.cursors.of_log(gone)

    @invariant()
    def each_has_its_own_state(self) -> None:
        cursors = [*self.cursors.of_log("i"), *self.cursors.of_log("j")]
        assert len(cursors) == len(self.cursors) == len({cursor.key.state for cursor in cursors})

    def write(self, changes: dict[str, bytes | None]) -> None:
        if changes:
            self.states.write(changes)

    def positions(self) -> dict[str, dict[int, int]]:
        return {
            cursor.key.state: dict(cursor.positions)
            for log in "ij"
            for cursor in self.cursors.of_log(log)
            if cursor.positions
        }


TestOverRestarts = OverRestarts.TestCase
