"""Where a consumer begins: every combination of conditions, and every invalid one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.consuming.start import (
    NEW_EVENTS,
    resumed_filters,
    resumed_position,
    source_filters,
    start_position,
)
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Described, Symbol, Timestamp, ULong, Value
from tests.amqp_streams.streams.conftest import NOW, Append

NAME = names.FILTER_DELIVERY_ANNOTATIONS
SYMBOL = Symbol(NAME)
TIMES = (NOW, NOW, NOW + 5, NOW + 9)


def conditions(offset: Value = None, timestamp: Value = None, descriptor: Value = SYMBOL) -> dict[str, Value]:
    given_map = {Symbol(names.OFFSET): offset, Symbol(names.TIMESTAMP): timestamp}
    return {
        NAME: Described(descriptor, {key: value for key, value in given_map.items() if value is not None})
    }


@pytest.fixture
def partition(log: StoredLog, append: Append) -> Partition:
    append(log.partitions[0], *TIMES)
    return log.partitions[0]


@pytest.mark.parametrize(
    ("filters", "first"),
    [
        ({}, 4),
        (conditions(), 0),
        (conditions(Symbol("@earliest")), 0),
        (conditions(Symbol("@latest")), 4),
        (conditions(Symbol(offset_text(0))), 1),
        (conditions(Symbol(offset_text(3))), 4),
        (conditions(Symbol(offset_text(9))), 10),
        (conditions(offset_text(1)), 2),
        (conditions(timestamp=Timestamp(NOW - 1)), 0),
        (conditions(timestamp=Timestamp(NOW)), 2),
        (conditions(timestamp=Timestamp(NOW + 5)), 3),
        (conditions(timestamp=Timestamp(NOW + 9)), 4),
        (conditions(timestamp=NOW), 2),
        (conditions(Symbol(offset_text(2)), Timestamp(NOW)), 3),
        (conditions(Symbol(offset_text(0)), Timestamp(NOW + 5)), 3),
        (conditions(Symbol("@earliest"), Timestamp(NOW + 5)), 3),
        (conditions(Symbol("@latest"), Timestamp(NOW)), 4),
        (conditions(Symbol(offset_text(1)), descriptor=ULong(names.FILTER_DELIVERY_ANNOTATIONS_CODE)), 2),
    ],
)
def test_each_combination_of_conditions_starts_where_it_says(
    partition: Partition, filters: dict[str, Value], first: int
) -> None:
    """Always greater than: a start after a read offset begins after it (5.2.1). No filter is the same as
    `@latest` (3.2).
    """
    found = source_filters(filters)
    assert start_position(found, partition) == first
    assert found.in_force == filters


def test_filters_of_one_source_hold_together(partition: Partition) -> None:
    """AMQP 3.5.8: the filter set is the conjunction of its filters."""
    filters: dict[str, Value] = {
        "early": Described(SYMBOL, {names.OFFSET: Symbol(offset_text(0)), names.TIMESTAMP: Timestamp(NOW)}),
        "late": Described(
            SYMBOL, {names.OFFSET: Symbol(offset_text(2)), names.TIMESTAMP: Timestamp(NOW - 9)}
        ),
    }
    found = source_filters(filters)
    assert start_position(found, partition) == 3
    assert found.bounds.after_ms == NOW
    assert found.in_force == filters


def test_the_number_of_filters_is_bounded() -> None:
    """Each condition is checked for each partition of a log."""
    offsets = [Symbol(offset_text(number)) for number in range(1000)]
    with pytest.raises(PeerError, match="filters"):
        source_filters(
            {f"f{index}": Described(SYMBOL, {names.OFFSET: offset}) for index, offset in enumerate(offsets)}
        )


def test_an_sql_filter_that_bounds_the_offset_is_sought_not_scanned(partition: Partition) -> None:
    """5.2.2: the grammar subset of event-streams-sql; the examples of the specification's editors' text."""
    for text, first in (
        ("d.event-streams-offset > '0000000000000001'", 2),
        ("d.event-streams-offset >= '0000000000000001'", 1),
    ):
        found = source_filters({"sql": Described(Symbol(names.FILTER_SQL), text)})
        assert start_position(found, partition) == first
        assert not found.content, "nothing is left to be looked at in each record"


def test_a_map_that_is_not_described_counts_under_the_filters_own_name(partition: Partition) -> None:
    filters: dict[str, Value] = {NAME: {names.OFFSET: Symbol(offset_text(1))}}
    assert start_position(source_filters(filters), partition) == 2


def test_a_filter_of_an_unknown_kind_is_left_out_and_does_not_open_the_past(partition: Partition) -> None:
    """AMQP 3.5.3: the answer lists the filters in force. Without a filter, only new events are delivered."""
    unknown: dict[str, Value] = {
        "theirs": Described(Symbol("vendor:some-filter"), "a > 1"),
        "code": Described(ULong(0x999), "d.x > 1"),
    }
    found = source_filters(unknown)
    assert (found.bounds, dict(found.in_force)) == (NEW_EVENTS, {})
    both = source_filters(unknown | conditions(Symbol("@earliest")))
    assert start_position(both, partition) == 0
    assert set(both.in_force) == {NAME}


@pytest.mark.parametrize(
    "value",
    [
        "text",
        [names.OFFSET],
        None,
        {names.OFFSET: 7},
        {names.OFFSET: b"0000000000000000"},
        {names.OFFSET: None},
        {names.OFFSET: Symbol("7")},
        {names.OFFSET: Symbol("@middle")},
        {names.OFFSET: Symbol("")},
        {names.TIMESTAMP: "2023-11-14"},
        {names.TIMESTAMP: True},
        {names.TIMESTAMP: 1.5},
        {names.SOURCE_PARTITION: Symbol("0")},
        {7: 7},
    ],
)
def test_a_filter_that_is_known_but_cannot_be_read_refuses_the_attach(value: Value) -> None:
    """A filter is never ignored: the error names the filter and the reason."""
    with pytest.raises(PeerError, match="filter mine") as refused:
        source_filters({"mine": Described(SYMBOL, value)})
    assert refused.value.condition == names.INVALID_FIELD
    assert refused.value.info.items() >= {"field": "filter", "filter": "mine"}.items()


@given(
    st.lists(st.integers(0, 20), max_size=12).map(sorted),
    st.one_of(st.none(), st.integers(0, 14), st.just("@earliest"), st.just("@latest")),
    st.one_of(st.none(), st.integers(-1, 21)),
)
def test_the_start_is_the_first_event_that_matches(
    steps: list[int], after: int | str | None, after_ms: int | None
) -> None:
    """The same as looking at every retained event from the earliest on (5.2)."""
    store = MemoryStore()
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    for step in steps:
        partition.append([b"\x00\x53\x75\xa0\x00"], b"\0", NOW + step)
        store.commit()
    offset = None if after is None else Symbol(after if isinstance(after, str) else offset_text(after))
    time = None if after_ms is None else Timestamp(NOW + after_ms)
    start = start_position(source_filters(conditions(offset, time)), partition)
    for number, step in enumerate(steps):
        matches = (
            after != "@latest"
            and (not isinstance(after, int) or number > after)
            and (after_ms is None or step > after_ms)
        )
        assert matches == (number >= start)


def test_records_that_retention_removed_are_skipped(store: MemoryStore, append: Append) -> None:
    log = store.create("short", LogSettings(retention_ms=1000, segment_ms=1000), incarnation="i")
    partition = log.partitions[0]
    append(partition, NOW, NOW + 5000)
    store.apply_retention(NOW + 5000)
    assert partition.start == 1
    assert start_position(source_filters(conditions(Symbol("@earliest"))), partition) == 1


# -- at a cursor


@pytest.mark.parametrize(
    ("filters", "kept", "first"),
    [
        ({}, 2, 2),
        (conditions(Symbol("@latest")), 2, 2),
        (conditions(Symbol("@earliest")), 2, 2),
        (conditions(Symbol(offset_text(0))), 2, 2),
        (conditions(Symbol(offset_text(2))), 1, 3),
        (conditions(timestamp=Timestamp(NOW)), 1, 2),
        (conditions(Symbol("@latest"), Timestamp(NOW + 5)), 0, 3),
        (conditions(Symbol("@latest")), 9, 9),
    ],
)
def test_a_cursor_is_where_a_link_goes_on_but_for_what_its_bounds_leave_out(
    partition: Partition, filters: dict[str, Value], kept: int, first: int
) -> None:
    """3.2 (editors' list): the last offset is preserved. "New events" was answered when the cursor was
    created.
    """
    resumed = resumed_filters(source_filters(filters))
    assert resumed_position(resumed, partition, kept) == first


def test_events_that_retention_removed_below_a_cursor_are_reported(store: MemoryStore) -> None:
    partition = store.create(
        "short", LogSettings(retention_ms=1000, segment_ms=1000), incarnation="i"
    ).partitions[0]
    partition.append([b"x"] * 3, bytes(3), NOW)
    store.commit()
    store.apply_retention(NOW + 5000)
    assert partition.start == 3
    assert resumed_position(resumed_filters(source_filters({})), partition, 1) == 1
