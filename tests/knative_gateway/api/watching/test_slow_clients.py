"""Many watches of large objects whose clients read slowly, or not at all: memory, and the other watches."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from sqlalchemy import Connection, delete, update

from knative_gateway.api import Api
from knative_gateway.api.negotiation import Form
from knative_gateway.api.watching import Client, Watches, watch_of
from knative_gateway.http import places
from knative_gateway.http.places import Places
from knative_gateway.ports import Change
from knative_gateway.resources.kinds import Kind
from knative_gateway.store import Store, feed
from knative_gateway.store.tables import CHANGES, COUNTERS
from tests.knative_gateway.api.client import MERGE, call, config_map

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LARGE = "x" * 300_000


class Readers:
    """Watches of ConfigMaps. They send when they are read."""

    def __init__(self, api: Api, store: Store, count: int) -> None:
        self.closing = asyncio.Event()
        self.every = Watches(
            api.objects, store.resources, self.closing, now_ms=lambda: 0, places=Places(count)
        )
        self.cut = asyncio.Event()
        kind = api.definitions.registry.find("", "v1", "configmaps")
        assert kind is not None
        self._kind: Kind = kind

    def watch(self, name: str, version: int = 0) -> AsyncGenerator[bytes, None]:
        query = {"resourceVersion": str(version)}
        client = Client(name, lambda: True, self.cut.set)
        return self.every.lines(watch_of(self._kind, "", "", query, Form.PLAIN), client)


async def line_of(watch: AsyncGenerator[bytes, None], begun: bytes = b"") -> dict[str, object]:
    line = begun
    async with asyncio.timeout(30):
        while not line.endswith(b"\n"):
            line += await anext(watch)
    found: dict[str, object] = json.loads(line)
    return found


async def written(api: Api, count: int) -> int:
    """Write versions of a large object. Returns the version before."""
    made = await call(api, "POST", CONFIG_MAPS, config_map("a"))
    for number in range(count):
        data = {"data": {"large": LARGE, "number": str(number)}}
        assert (await call(api, "PATCH", f"{CONFIG_MAPS}/a", data, headers=MERGE)).code == 200
    return int(made.json["metadata"]["resourceVersion"])


async def test_watches_share_the_places_and_all_get_large_changes(api: Api, store: Store) -> None:
    version = await written(api, 2)
    readers = Readers(api, store, 4)

    async def read() -> list[object]:
        async with aclosing(readers.watch("me", version)) as watch:
            return [(await line_of(watch))["object"] for _ in range(2)]

    got = await asyncio.gather(*(read() for _ in range(20)))
    assert [each["data"]["number"] for each in got[0]] == ["0", "1"]  # type: ignore[index]
    assert all(each == got[0] for each in got)
    assert not readers.cut.is_set()


@pytest.mark.parametrize("is_initial", [True, False])
async def test_watches_without_a_place_hold_no_large_object(
    api: Api, store: Store, monkeypatch: pytest.MonkeyPatch, *, is_initial: bool
) -> None:
    monkeypatch.setattr(feed, "TAIL_CHARACTERS_MAX", 1)
    version = await written(api, 12)
    readers = Readers(api, store, 2)
    stuck = [readers.watch("me", 0 if is_initial else version + number) for number in range(12)]
    first = await anext(stuck[0])
    assert first.count(b"\n") == 0, "only a piece was sent"
    waiting = [asyncio.create_task(anext(watch)) for watch in stuck[1:]]
    for _ in range(200):
        await asyncio.sleep(0.001)
    gc.collect()
    assert not any(task.done() for task in waiting)
    held = [each for each in gc.get_objects() if isinstance(each, Change) and each.characters > len(LARGE)]
    assert len(held) <= 2, "the newest one in the tail, and one that is being decoded"
    small = config_map("small")
    assert (await call(api, "POST", CONFIG_MAPS, small)).code == 201
    version = int((await call(api, "GET", CONFIG_MAPS)).json["metadata"]["resourceVersion"])
    async with aclosing(readers.watch("me", version - 1)) as other:
        assert (await line_of(other))["type"] == "ADDED", "a small change needs no place"
    readers.closing.set()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, StopAsyncIteration)
    await stuck[0].aclose()


async def test_a_watch_that_does_not_read_ends_if_others_wait_for_its_place(
    api: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SLOW_S", -1.0)
    monkeypatch.setattr(places, "LOOK_S", 0.0)
    version = await written(api, 2)
    readers = Readers(api, store, 2)
    slow, fast = readers.watch("slow", version), readers.watch("slow", version + 1)
    await anext(slow)
    coming = asyncio.create_task(line_of(fast))
    await asyncio.wait_for(readers.cut.wait(), 30)
    await slow.aclose()  # the listener does this when the connection has ended
    assert (await coming)["type"] == "MODIFIED"
    await fast.aclose()


async def test_watches_of_the_same_change_do_not_wait_for_each_other(api: Api, store: Store) -> None:
    version = await written(api, 1)
    readers = Readers(api, store, 2)
    slow = [readers.watch("me", version) for _ in range(10)]
    for each in slow:
        await asyncio.wait_for(anext(each), 30)
    async with aclosing(readers.watch("me", version)) as other:
        assert (await line_of(other))["type"] == "MODIFIED"
    for each in slow:
        await each.aclose()


async def test_a_change_that_was_removed_while_its_watch_waited_expires(api: Api, store: Store) -> None:
    version = await written(api, 2)
    readers = Readers(api, store, 2)
    slow, late = readers.watch("me", version), readers.watch("me", version + 1)
    await anext(slow)
    coming = asyncio.create_task(line_of(late))
    for _ in range(50):
        await asyncio.sleep(0.001)
    feed_ = store.resources._feed
    feed_._tail.clear()
    feed_._reach = feed_._newest

    def trim(connection: Connection) -> None:
        connection.execute(delete(CHANGES))
        connection.execute(update(COUNTERS).values(trimmed=feed_._newest))

    await feed_._database.write(trim)
    await slow.aclose()
    expired = await coming
    assert (expired["type"], expired["object"]["code"]) == ("ERROR", 410)  # type: ignore[index]
    await late.aclose()
