"""The changes of the store for one watch: each once, in order, and at most one of them held."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from knative_gateway.api.watching.following import Following
from knative_gateway.errors import GoneError
from knative_gateway.ports import Change, Key
from knative_gateway.store import Store, feed

WAIT_S = 10.0


@asynccontextmanager
async def following(
    store: Store, after: int, closing: asyncio.Event | None = None
) -> AsyncIterator[Following]:
    made = Following(store.resources, after, closing or asyncio.Event())
    try:
        yield made
    finally:
        await made.close()


async def write(store: Store, count: int = 1, name: str = "a") -> None:
    for _ in range(count):
        await store.resources.write(Key("", "ConfigMap", "default", name), {"x": 1}, expected_version=None)


async def test_each_change_comes_once_and_is_held_until_it_is_done(store: Store) -> None:
    await write(store, 3)
    async with following(store, 1) as changes:
        for version in (2, 3, 4):
            assert await changes.come(WAIT_S)
            assert await changes.come(WAIT_S), "it is still held"
            assert (changes.change.version, changes.position) == (version, version)
            changes.done()
        assert not await changes.come(0.0)
        await write(store)
        assert await changes.come(WAIT_S)
        assert changes.position == 5


async def test_a_change_that_was_forgotten_comes_again(store: Store) -> None:
    await write(store, 2)
    async with following(store, 1) as changes:
        assert await changes.come(WAIT_S)
        await changes.forget(changes.position - 1)
        assert changes._change is None
        assert await changes.come(WAIT_S)
        assert changes.change.version == 2
        changes.done()
        assert await changes.come(WAIT_S)
        assert changes.change.version == 3


async def test_closing_ends_a_wait(store: Store) -> None:
    closing = asyncio.Event()
    async with following(store, 1, closing) as changes:
        coming = asyncio.create_task(changes.come(3_600.0))
        await asyncio.sleep(0)
        closing.set()
        assert not await asyncio.wait_for(coming, WAIT_S)


async def test_a_version_that_does_not_exist_raises(store: Store) -> None:
    async with following(store, 1_000) as changes:
        with pytest.raises(GoneError, match="does not exist yet"):
            await changes.come(WAIT_S)


async def test_watches_at_different_versions_hold_none_of_the_past(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads slowly is at any version: a thousand of them would hold a thousand changes each."""
    monkeypatch.setattr(feed, "TAIL_CHARACTERS_MAX", 500)
    # Those of other tests may still be there.
    others = [each for each in gc.get_objects() if isinstance(each, Change)]
    every = [Following(store.resources, 1, asyncio.Event()) for _ in range(20)]
    await write(store, 30)
    for number, one in enumerate(every):
        for _ in range(number + 1):
            assert await one.come(WAIT_S)
            one.done()
    gc.collect()
    known = set(map(id, others))
    held = [each for each in gc.get_objects() if isinstance(each, Change) and id(each) not in known]
    assert len(held) < 10
    for one in every:
        await one.close()
