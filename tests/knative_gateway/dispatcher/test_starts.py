"""Where a subscriber starts: at its stored cursor, in a recreated log, or where a replay moved it."""

from collections.abc import Callable, Collection, Mapping

import pytest

from event_formats.amqp_binding import encode
from knative_gateway.dispatcher import starts
from knative_gateway.dispatcher.positions import Lost
from knative_gateway.ports import Start, StoredCursor
from tests.knative_gateway.dispatcher.rig import LOG, MemoryCursorStore, event, subscriber
from tests.knative_gateway.memory_log import MemoryEventLog


def at(number: int) -> str:
    return f"{number:016d}"


@pytest.fixture
def kept() -> MemoryCursorStore:
    return MemoryCursorStore()


@pytest.fixture
async def log() -> MemoryEventLog:
    """Two partitions with three events each."""
    made = MemoryEventLog()
    await made.ensure(LOG, partitions=2, retention_ms=None)
    for number in range(6):
        await made.append(LOG, encode(event(number)))
    return made


def everywhere(_: int) -> bool:
    return True


def nowhere(_: int) -> bool:
    return False


async def begun(
    log: MemoryEventLog, kept: MemoryCursorStore, ours: Callable[[int], bool] = everywhere, **fields: object
) -> dict[int, str]:
    spec = subscriber("u", None, **fields)
    begun = await starts.begin(
        [spec], await log.extents(LOG), LOG, lambda _, partition: ours(partition), events=log, store=kept
    )
    return {partition: begin.position for partition, begin in begun["u"].items()}


async def test_a_new_subscriber_begins_at_the_end_and_that_is_stored(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    assert await begun(log, kept) == {0: at(2), 1: at(2)} == kept.positions["u"]


async def test_a_known_subscriber_continues_from_its_cursor_and_ignores_its_start(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    await begun(log, kept)
    assert await begun(log, kept, start=Start.EARLIEST) == {0: at(2), 1: at(2)}


async def test_a_partition_without_a_position_is_read_from_its_beginning(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    kept.positions["u"] = {0: at(1)}
    assert await begun(log, kept) == {0: at(1), 1: ""}


async def test_positions_of_a_former_log_of_that_name_are_not_used(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    """This holds even if they are valid in the new log. Replays of the former log are not carried out."""
    kept.positions["u"] = {0: at(1), 1: at(9)}
    await begun(log, kept)
    await kept.ask_replay("u", {0: at(0)})
    events = log.logs[LOG]
    await log.delete(LOG)
    await log.ensure(LOG, partitions=2, retention_ms=None)
    log.logs[LOG] = events
    assert await begun(log, kept) == {0: "", 1: ""} == kept.positions["u"]
    assert await kept.replays() == {}
    kept.positions["u"] = {0: at(1), 1: at(2)}
    assert await begun(log, kept) == {0: at(1), 1: at(2)}


async def test_positions_without_an_incarnation_are_of_the_current_log(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    """They were stored before incarnations were introduced, or the node does not report one."""
    kept.positions["u"] = {0: at(1), 1: at(2)}
    assert await begun(log, kept) == {0: at(1), 1: at(2)}
    assert kept.incarnations["u"] == (await log.extents(LOG)).incarnation
    kept.incarnations["u"] = ""
    assert await begun(log, kept) == {0: at(1), 1: at(2)}


async def test_the_owner_of_a_partition_carries_out_its_replay(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    await begun(log, kept)
    await kept.ask_replay("u", {0: "", 1: at(0)})
    assert await begun(log, kept, nowhere) == {0: at(2), 1: at(2)}
    assert await begun(log, kept, lambda partition: partition == 1) == {0: at(2), 1: at(0)}
    assert kept.positions["u"] == {0: at(2), 1: at(0)}
    assert await kept.replays() == {"u": {0: ""}}
    assert await begun(log, kept) == {0: "", 1: at(0)} == kept.positions["u"]
    assert await kept.replays() == {}


async def test_a_later_request_replaces_an_earlier_one(log: MemoryEventLog, kept: MemoryCursorStore) -> None:
    await begun(log, kept)
    await kept.ask_replay("u", {0: "", 1: ""})
    await kept.ask_replay("u", {1: at(1)})
    assert await begun(log, kept) == {0: "", 1: at(1)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0=@earliest,1=@latest", {0: "", 1: at(7)}),
        ("0=3", {0: at(3)}),
        (f"1={at(3)}", {1: at(3)}),
        ("1=99", {1: at(7)}),
        ("2=1,3=@latest", {2: ""}),
    ],
)
def test_offsets_may_be_written_without_leading_zeros(text: str, expected: dict[int, str]) -> None:
    assert starts.after_offsets(text, {0: at(5), 1: at(7), 2: ""}) == expected


async def test_events_that_retention_removed_before_their_delivery_are_reported(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    kept.positions["u"] = {0: at(0), 1: at(2)}
    log.removed = {(LOG, 0): 2, (LOG, 1): 2}
    begun = await starts.begin(
        [subscriber("u", None)], await log.extents(LOG), LOG, lambda *_: True, events=log, store=kept
    )
    assert begun["u"][0].lost == Lost(at(0), at(1), 1)
    assert begun["u"][1].lost is None


async def test_the_earliest_start_is_the_first_event_that_retention_left(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    """Events that retention removed before the subscriber began are not lost."""
    log.removed = {(LOG, 0): 2}
    assert await begun(log, kept, start=Start.EARLIEST) == {0: at(1), 1: ""}
    assert await begun(log, kept, start=Start.EARLIEST) == {0: at(1), 1: ""}


async def test_all_subscribers_of_a_route_begin_with_one_query(
    log: MemoryEventLog, kept: MemoryCursorStore
) -> None:
    specs = [subscriber(f"u{number}", None) for number in range(100)]
    loads, load = 0, kept.load

    async def counted(uids: Collection[str]) -> Mapping[str, StoredCursor]:
        nonlocal loads
        loads += 1
        return await load(uids)

    kept.load = counted  # type: ignore[method-assign]
    extents = await log.extents(LOG)
    await starts.begin(specs, extents, LOG, lambda *_: True, events=log, store=kept)
    loads = 0
    begun = await starts.begin(specs, extents, LOG, lambda *_: True, events=log, store=kept)
    assert (len(begun), loads, log.asked) == (100, 1, 1)
