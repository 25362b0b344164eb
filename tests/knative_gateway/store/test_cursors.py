"""Positions that only go forward, replays, and a history with an end. Each on SQLite and on PostgreSQL."""

import asyncio

from knative_gateway.ports import Failure, StoredCursor
from knative_gateway.store import Store
from knative_gateway.store.cursors import HISTORY_MAX
from tests.knative_gateway.store.counting import counted


def failure(number: int, body: str = "") -> Failure:
    return Failure(number, f"id-{number}", "/source", 0, f"{number:020}", 1, 503, "Service Unavailable", body)


async def positions(store: Store, uid: str) -> dict[int, str]:
    """The stored positions of one subscriber."""
    cursor = (await store.cursors.load([uid])).get(uid)
    return {} if cursor is None else dict(cursor.positions)


async def test_positions_are_stored_by_subscriber_and_partition(store: Store) -> None:
    assert await positions(store, "one") == {}
    await store.cursors.save({("one", 0): "01", ("one", 3): "02", ("other", 0): "03"})
    assert await positions(store, "one") == {0: "01", 3: "02"}
    assert await positions(store, "other") == {0: "03"}
    await store.cursors.save({})


async def test_a_position_goes_back_only_by_a_reset(store: Store) -> None:
    await store.cursors.save({("one", 0): "05", ("one", 1): "0Z"})
    await store.cursors.save({("one", 0): "04", ("one", 1): "0a"})
    assert await positions(store, "one") == {0: "05", 1: "0a"}, (
        "Z sorts before a byte by byte, behind it in most locales"
    )
    await store.cursors.reset("one", {0: "01"})
    assert await positions(store, "one") == {0: "01", 1: "0a"}


async def test_concurrent_resets_of_the_same_rows_succeed(store: Store) -> None:
    await asyncio.gather(
        *(store.cursors.reset("one", dict.fromkeys(range(6), f"{number}")) for number in range(8))
    )
    assert len(set((await positions(store, "one")).values())) == 1


async def test_a_replay_is_stored_until_its_partition_is_replayed(store: Store) -> None:
    cursors = store.cursors
    await cursors.begin({"one": StoredCursor({0: "05", 1: "06", 2: "07"}, "log-1")})
    await cursors.save({}, {("one", 1): [("08", "09")]})
    await cursors.ask_replay("one", {0: "01", 1: "02"})
    await cursors.ask_replay("one", {1: ""})
    await cursors.ask_replay("other", {3: "04"})
    assert await cursors.replays() == {"one": {0: "01", 1: ""}, "other": {3: "04"}}
    assert await cursors.load(["one"]) == {
        "one": StoredCursor({0: "05", 1: "06", 2: "07"}, "log-1", {0: "01", 1: ""})
    }
    await cursors.replay("one", {1: ""})
    assert await cursors.load(["one"]) == {"one": StoredCursor({0: "05", 1: "", 2: "07"}, "log-1", {0: "01"})}
    assert await cursors.done(["one"]) == {}
    await cursors.forget("one")
    assert (await cursors.load(["one"]), await cursors.replays()) == ({}, {"other": {3: "04"}})


async def test_a_recreated_log_ends_its_replays(store: Store) -> None:
    cursors = store.cursors
    await cursors.begin({"one": StoredCursor({0: "05", 1: "06"}, "log-1")})
    await cursors.save({}, {("one", 0): [("08", "09")]})
    await cursors.ask_replay("one", {1: "02"})
    await cursors.restart("one", {0: "", 1: ""}, "log-2")
    assert await cursors.load(["one"]) == {"one": StoredCursor({0: "", 1: ""}, "log-2")}
    assert (await cursors.done(["one"]), await cursors.replays()) == ({}, {})


async def test_positions_of_a_former_log_are_not_stored(store: Store) -> None:
    """The replica that stores them has not noticed yet that the log was recreated."""
    cursors = store.cursors
    await cursors.begin(
        {"one": StoredCursor({0: "05", 1: "06"}, "log-1"), "two": StoredCursor({0: "01"}, "")}
    )
    await cursors.restart("one", {0: "", 1: ""}, "log-2")
    logs = {("one", 0): "log-1", ("one", 1): "log-2", ("two", 0): "log-1", ("new", 0): "log-1"}
    ranges = [("8", "9")]
    await cursors.save(dict.fromkeys(logs, "07"), dict.fromkeys(logs, ranges), logs)
    assert [await positions(store, uid) for uid in ("one", "two", "new")] == [
        {0: "", 1: "07"},
        {0: "07"},
        {0: "07"},
    ]
    assert await cursors.done(["one", "two"]) == {("one", 1): ranges, ("two", 0): ranges}


async def test_an_incarnation_is_stored_once(store: Store) -> None:
    """An empty one is stored, too: the node did not report it."""
    await store.cursors.save({("one", 0): "01", ("two", 0): "01"})
    begun = await store.cursors.begin(
        {"one": StoredCursor(incarnation="log-1"), "two": StoredCursor(incarnation="")}
    )
    assert begun == {"one": StoredCursor({0: "01"}, "log-1"), "two": StoredCursor({0: "01"}, "")}
    assert await store.cursors.begin({"one": StoredCursor(incarnation="log-2")}) == {
        "one": StoredCursor({0: "01"}, "log-1")
    }


async def test_many_positions_are_saved_at_once(store: Store) -> None:
    wanted = {(f"uid-{uid}", partition): f"{uid:010}" for uid in range(300) for partition in range(8)}
    await store.cursors.save(wanted)
    assert await positions(store, "uid-299") == dict.fromkeys(range(8), f"{299:010}")


async def test_concurrent_saves_of_the_same_rows_succeed(store: Store) -> None:
    forth = {(f"uid-{uid}", 0): "1" for uid in range(50)}
    back = {(f"uid-{uid}", 0): "2" for uid in reversed(range(50))}
    await asyncio.gather(*(store.cursors.save(positions) for positions in (forth, back) * 4))
    assert await positions(store, "uid-7") == {0: "2"}


async def test_the_history_has_the_latest_failure_first(store: Store) -> None:
    assert await store.cursors.history("one") == []
    await store.cursors.record({"one": [failure(1), failure(2, "\x00\ud800 ü")]})
    await store.cursors.record({"other": [failure(3)]})
    await store.cursors.record({"one": []})
    assert await store.cursors.history("one") == [failure(2, "\x00\ud800 ü"), failure(1)]


async def test_older_failures_are_forgotten(store: Store) -> None:
    await store.cursors.record({"other": [failure(0)]})
    await store.cursors.record({"one": [failure(number) for number in range(HISTORY_MAX + 50)]})
    await store.cursors.record({"one": [failure(1000)]})
    history = await store.cursors.history("one")
    assert [each.at_ms for each in history] == [1000, *range(HISTORY_MAX + 49, 50, -1)]
    assert len(history) == HISTORY_MAX
    assert len(await store.cursors.history("other")) == 1


async def test_nothing_is_left_of_a_removed_subscriber(store: Store) -> None:
    await store.cursors.save({("one", 0): "01", ("other", 0): "01"})
    await store.cursors.record({"one": [failure(1)]})
    await store.cursors.forget("one")
    assert (await positions(store, "one"), await store.cursors.history("one")) == ({}, [])
    assert await positions(store, "other") == {0: "01"}


async def test_replicas_that_begin_at_the_same_time_get_the_same_positions(store: Store) -> None:
    """The second one gets the positions of the first: otherwise events between the two would be lost."""
    assert await store.cursors.begin({"one": StoredCursor({0: "05", 1: ""})}) == {
        "one": StoredCursor({0: "05", 1: ""})
    }
    later = await store.cursors.begin({"one": StoredCursor({0: "07", 1: "03", 2: "01"})})
    assert later == {"one": StoredCursor({0: "05", 1: "", 2: "01"})}
    assert await store.cursors.begin({"none": StoredCursor()}) == {}


async def test_completed_offsets_above_a_position_are_stored_until_a_reset(store: Store) -> None:
    ranges = [("03", "05"), ("07", "09")]
    await store.cursors.save(
        {("one", 0): "02"}, {("one", 0): ranges, ("one", 1): [("", "01")], ("other", 0): ranges}
    )
    assert await store.cursors.done(["one"]) == {("one", 0): ranges, ("one", 1): [("", "01")]}
    await store.cursors.save({}, {("one", 1): []})
    await store.cursors.reset("one", {0: "00"})
    assert await store.cursors.done(["one", "other"]) == {("one", 1): [], ("other", 0): ranges}
    await store.cursors.forget("one")
    assert await store.cursors.done(["one"]) == {}


async def test_many_subscribers_are_read_at_once(store: Store) -> None:
    """More than the parameters that a statement may have."""
    uids, cursor = [f"uid-{number}" for number in range(2_500)], StoredCursor({0: "01"}, "log-1")
    assert await store.cursors.begin(dict.fromkeys(uids, cursor)) == dict.fromkeys(uids, cursor)
    assert len(await store.cursors.load(uids)) == 2_500


async def test_positions_of_many_new_subscribers_cost_one_transaction(store: Store) -> None:
    uids, cursor = [f"uid-{number}" for number in range(50)], StoredCursor({0: "01"}, "log-1")
    with counted() as asked:
        assert await store.cursors.begin(dict.fromkeys(uids, cursor)) == dict.fromkeys(uids, cursor)
    assert asked["commits"] == 1
