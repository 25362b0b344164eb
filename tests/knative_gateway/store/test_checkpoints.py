"""Positions that only go forward, and a history with an end. Each on SQLite and on PostgreSQL."""

import asyncio

from knative_gateway.ports import Failure
from knative_gateway.store import Store
from knative_gateway.store.checkpoints import HISTORY_MAX
from tests.knative_gateway.store.counting import counted


def failure(number: int, body: str = "") -> Failure:
    return Failure(number, f"id-{number}", "/source", 0, f"{number:020}", 1, 503, "Service Unavailable", body)


async def test_positions_are_kept_by_subscriber_and_partition(store: Store) -> None:
    assert (await store.checkpoints.load(["one"])).get("one", {}) == {}
    await store.checkpoints.save({("one", 0): "01", ("one", 3): "02", ("other", 0): "03"})
    assert (await store.checkpoints.load(["one"])).get("one", {}) == {0: "01", 3: "02"}
    assert (await store.checkpoints.load(["other"])).get("other", {}) == {0: "03"}
    await store.checkpoints.save({})


async def test_a_position_never_goes_back_but_by_reset(store: Store) -> None:
    await store.checkpoints.save({("one", 0): "05", ("one", 1): "0Z"})
    await store.checkpoints.save({("one", 0): "04", ("one", 1): "0a"})
    assert (await store.checkpoints.load(["one"])).get("one", {}) == {0: "05", 1: "0a"}, (
        "Z sorts before a byte by byte, behind it in most locales"
    )
    await store.checkpoints.reset("one", {0: "01"})
    assert (await store.checkpoints.load(["one"])).get("one", {}) == {0: "01", 1: "0a"}


async def test_resets_of_the_same_rows_do_not_stand_in_each_others_way(store: Store) -> None:
    await asyncio.gather(*(store.checkpoints.reset("one", dict.fromkeys(range(-3, 3), f"{number}")) for number in range(8)))
    assert len(set(((await store.checkpoints.load(["one"])).get("one", {})).values())) == 1


async def test_what_is_noted_is_found_for_all(store: Store) -> None:
    await store.checkpoints.reset("one", {0: "05", -1: "x", -2: "=", -3: ""})
    await store.checkpoints.reset("other", {-5: "=07"})
    await store.checkpoints.reset("third", {-1: "x"})
    assert await store.checkpoints.noted(below=-1) == {"one": {-2: "="}, "other": {-5: "=07"}}


async def test_many_positions_are_saved_at_once(store: Store) -> None:
    wanted = {(f"uid-{uid}", partition): f"{uid:010}" for uid in range(300) for partition in range(8)}
    await store.checkpoints.save(wanted)
    assert (await store.checkpoints.load(["uid-299"])).get("uid-299", {}) == dict.fromkeys(range(8), f"{299:010}")


async def test_savers_of_the_same_rows_do_not_stand_in_each_others_way(store: Store) -> None:
    forth = {(f"uid-{uid}", 0): "1" for uid in range(50)}
    back = {(f"uid-{uid}", 0): "2" for uid in reversed(range(50))}
    await asyncio.gather(*(store.checkpoints.save(positions) for positions in (forth, back) * 4))
    assert (await store.checkpoints.load(["uid-7"])).get("uid-7", {}) == {0: "2"}


async def test_the_latest_failures_are_told_latest_first(store: Store) -> None:
    assert await store.checkpoints.history("one") == []
    await store.checkpoints.record({"one": [failure(1), failure(2, "\x00\ud800 ü")]})
    await store.checkpoints.record({"other": [failure(3)]})
    await store.checkpoints.record({"one": []})
    assert await store.checkpoints.history("one") == [failure(2, "\x00\ud800 ü"), failure(1)]


async def test_older_failures_are_forgotten(store: Store) -> None:
    await store.checkpoints.record({"other": [failure(0)]})
    await store.checkpoints.record({"one": [failure(number) for number in range(HISTORY_MAX + 50)]})
    await store.checkpoints.record({"one": [failure(1000)]})
    history = await store.checkpoints.history("one")
    assert [each.at_ms for each in history] == [1000, *range(HISTORY_MAX + 49, 50, -1)]
    assert len(history) == HISTORY_MAX
    assert len(await store.checkpoints.history("other")) == 1


async def test_who_is_gone_leaves_nothing(store: Store) -> None:
    await store.checkpoints.save({("one", 0): "01", ("other", 0): "01"})
    await store.checkpoints.record({"one": [failure(1)]})
    await store.checkpoints.forget("one")
    assert ((await store.checkpoints.load(["one"])).get("one", {}), await store.checkpoints.history("one")) == ({}, [])
    assert (await store.checkpoints.load(["other"])).get("other", {}) == {0: "01"}


async def test_replicas_that_begin_at_once_begin_at_the_same(store: Store) -> None:
    """Whoever comes second gets the first one's, or events between the two would be nobody's."""
    assert (await store.checkpoints.begin({"one": {0: "05", 1: ""}})).get("one", {}) == {0: "05", 1: ""}
    assert (await store.checkpoints.begin({"one": {0: "07", 1: "03", 2: "01"}})).get("one", {}) == {0: "05", 1: "", 2: "01"}
    assert (await store.checkpoints.begin({"none": {}})).get("none", {}) == {}


async def test_what_is_completed_above_a_position_is_kept_until_it_is_reset(store: Store) -> None:
    ranges = [("03", "05"), ("07", "09")]
    await store.checkpoints.save({("one", 0): "02"}, {("one", 0): ranges, ("one", 1): [("", "01")], ("other", 0): ranges})
    assert await store.checkpoints.done(["one"]) == {("one", 0): ranges, ("one", 1): [("", "01")]}
    await store.checkpoints.save({}, {("one", 1): []})
    await store.checkpoints.reset("one", {0: "00", -1: "x"})
    assert await store.checkpoints.done(["one", "other"]) == {("one", 1): [], ("other", 0): ranges}
    await store.checkpoints.forget("one")
    assert await store.checkpoints.done(["one"]) == {}


async def test_many_subscribers_are_read_at_once(store: Store) -> None:
    """More than the parameters that a statement may have."""
    uids = [f"uid-{number}" for number in range(2_500)]
    assert await store.checkpoints.begin({uid: {0: "01"} for uid in uids}) == {uid: {0: "01"} for uid in uids}
    assert len(await store.checkpoints.load(uids)) == 2_500


async def test_positions_of_many_new_subscribers_cost_one_transaction(store: Store) -> None:
    uids = [f"uid-{number}" for number in range(50)]
    with counted() as asked:
        assert await store.checkpoints.begin({uid: {0: "01"} for uid in uids}) == {uid: {0: "01"} for uid in uids}
    assert asked["commits"] == 1
