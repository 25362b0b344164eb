"""Where a subscriber begins: its place, another log's place, a place that was asked for."""

from collections.abc import Callable, Collection, Mapping

import pytest

from event_formats.amqp_binding import encode
from knative_gateway.dispatcher import places
from knative_gateway.ports import Start
from tests.knative_gateway.dispatcher.rig import LOG, MemoryCheckpoints, event, subscriber
from tests.knative_gateway.memory_log import MemoryEventLog


def place(number: int) -> str:
    return f"{number:016d}"


@pytest.fixture
def kept() -> MemoryCheckpoints:
    return MemoryCheckpoints()


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


async def begun(log: MemoryEventLog, kept: MemoryCheckpoints, ours: Callable[[int], bool] = everywhere, **fields: object) -> dict[int, str]:
    spec = subscriber("u", None, **fields)
    begun = await places.begin([spec], await log.extents(LOG), LOG, lambda _, partition: ours(partition), events=log, checkpoints=kept)
    return {partition: begin.position for partition, begin in begun["u"].items()}


async def test_a_new_one_begins_at_the_end_and_that_is_kept(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    assert await begun(log, kept) == {0: place(2), 1: place(2)} == kept.places["u"]


async def test_a_known_one_goes_on_whatever_its_start_says(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    await begun(log, kept)
    assert await begun(log, kept, start=Start.EARLIEST) == {0: place(2), 1: place(2)}


async def test_a_partition_without_a_place_is_read_from_its_beginning(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    kept.places["u"] = {0: place(1)}
    assert await begun(log, kept) == {0: place(1), 1: ""}


async def test_a_place_of_another_log_of_that_name_says_nothing(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    """Also where it lies within the new one; and what was asked for was about the former, too."""
    kept.places["u"] = {0: place(1), 1: place(9)}
    await begun(log, kept)
    await places.ask("u", {0: place(0)}, kept)
    events = log.logs[LOG]
    await log.delete(LOG)
    await log.ensure(LOG, partitions=2, retention_ms=None)
    log.logs[LOG] = events
    assert await begun(log, kept) == {0: "", 1: ""} == kept.places["u"]
    assert await kept.noted(below=places.INCARNATION) == {}
    kept.places["u"] = {0: place(1), 1: place(2)}
    assert await begun(log, kept) == {0: place(1), 1: place(2)}


async def test_places_without_an_incarnation_are_of_the_log_that_is_there(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    """They were kept before there was one, or the node does not tell."""
    kept.places["u"] = {0: place(1), 1: place(2)}
    assert await begun(log, kept) == {0: place(1), 1: place(2)}
    assert kept.notes["u"] == {-1: (await log.extents(LOG)).incarnation}
    kept.notes["u"] = {-1: ""}
    assert await begun(log, kept) == {0: place(1), 1: place(2)}


async def test_who_owns_the_partition_goes_where_it_was_asked_to(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    await begun(log, kept)
    await places.ask("u", {0: "", 1: place(0)}, kept)
    assert await begun(log, kept, nowhere) == {0: place(2), 1: place(2)}
    assert await begun(log, kept, lambda partition: partition == 1) == {0: place(2), 1: place(0)}
    assert kept.places["u"] == {0: place(2), 1: place(0)}
    assert {uid: places.asked_for(rows) for uid, rows in (await kept.noted(below=places.INCARNATION)).items()} == {"u": {0: ""}}
    assert await begun(log, kept) == {0: "", 1: place(0)} == kept.places["u"]
    assert await kept.noted(below=places.INCARNATION) == {}


async def test_what_is_asked_last_counts(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    await begun(log, kept)
    await places.ask("u", {0: "", 1: ""}, kept)
    await places.ask("u", {1: place(1)}, kept)
    assert await begun(log, kept) == {0: "", 1: place(1)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0=@earliest,1=@latest", {0: "", 1: place(7)}),
        ("0=3", {0: place(3)}),
        (f"1={place(3)}", {1: place(3)}),
        ("1=99", {1: place(7)}),
        ("2=1,3=@latest", {2: ""}),
    ],
)
def test_offsets_are_understood_as_people_write_them(text: str, expected: dict[int, str]) -> None:
    assert places.after_offsets(text, {0: place(5), 1: place(7), 2: ""}) == expected


async def test_what_retention_took_before_it_was_delivered_is_known(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    kept.places["u"] = {0: place(0), 1: place(2)}
    log.removed = {(LOG, 0): 2, (LOG, 1): 2}
    begun = await places.begin([subscriber("u", None)], await log.extents(LOG), LOG, lambda *_: True, events=log, checkpoints=kept)
    assert begun["u"][0].lost == places.Lost(place(0), place(1), 1)
    assert begun["u"][1].lost is None


async def test_the_earliest_is_the_first_that_is_there(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    """Events that retention removed earlier do not count as lost."""
    log.removed = {(LOG, 0): 2}
    assert await begun(log, kept, start=Start.EARLIEST) == {0: place(1), 1: ""}
    assert await begun(log, kept, start=Start.EARLIEST) == {0: place(1), 1: ""}


async def test_all_of_a_route_begin_with_one_look_at_each(log: MemoryEventLog, kept: MemoryCheckpoints) -> None:
    specs = [subscriber(f"u{number}", None) for number in range(100)]
    loads, load = 0, kept.load

    async def counted(uids: Collection[str]) -> Mapping[str, Mapping[int, str]]:
        nonlocal loads
        loads += 1
        return await load(uids)

    kept.load = counted  # type: ignore[method-assign]
    extents = await log.extents(LOG)
    await places.begin(specs, extents, LOG, lambda *_: True, events=log, checkpoints=kept)
    loads = 0
    begun = await places.begin(specs, extents, LOG, lambda *_: True, events=log, checkpoints=kept)
    assert (len(begun), loads, log.asked) == (100, 1, 1)
