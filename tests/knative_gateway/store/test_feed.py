"""The watch feed: every change once, in order, also of another replica; and a limit on the remembered
changes.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from knative_gateway.errors import GoneError
from knative_gateway.ports import Change, Key
from knative_gateway.store import Store, feed, open_store, resources, sqlite_url
from knative_gateway.store.database import Database
from knative_gateway.store.documents import read

GROUP = "eventing.knative.dev"


def key(name: str, kind: str = "Trigger") -> Key:
    return Key(GROUP, kind, "default", name)


async def take(changes: AsyncIterator[Change], count: int) -> list[Change]:
    async with asyncio.timeout(60):
        return [await anext(changes) for _ in range(count)]


async def test_a_watch_sees_what_was_there_before_and_what_comes(store: Store) -> None:
    await store.resources.write(key("a"), {"spec": 1}, expected_version=0)
    watch = store.resources.watch(GROUP, "Trigger", 1)
    await store.resources.write(key("b", "Broker"), {"spec": 1}, expected_version=0)
    await store.resources.write(key("a"), {"spec": 2}, expected_version=2)
    coming = asyncio.create_task(take(watch, 3))
    await asyncio.sleep(0)
    await store.resources.write(key("a"), None, expected_version=4)
    changes = await coming
    assert [(change.type, change.version, change.key.name) for change in changes] == [
        ("ADDED", 2, "a"),
        ("MODIFIED", 4, "a"),
        ("DELETED", 5, "a"),
    ]
    assert [change.object["spec"] for change in changes] == [1, 2, 2]
    assert changes[0].previous is None
    assert [change.previous and change.previous["spec"] for change in changes[1:]] == [1, 2]
    assert changes[2].object["metadata"] == {"resourceVersion": "5"}


async def test_a_watch_of_every_kind_sees_all(store: Store) -> None:
    watch = store.resources.watch("", "", 1)
    for kind in ("Trigger", "Broker"):
        await store.resources.write(key("a", kind), {}, expected_version=0)
    assert [change.key.kind for change in await take(watch, 2)] == ["Trigger", "Broker"]


async def test_a_watch_that_is_far_behind_reads_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BATCH", 10)
    count = 32
    async with open_store(sqlite_url(tmp_path)) as store:
        for number in range(count):
            await store.resources.write(
                key("a", "Trigger" if number % 2 else "Broker"), {}, expected_version=None
            )
    async with open_store(sqlite_url(tmp_path)) as store:
        changes = await take(store.resources.watch(GROUP, "Trigger", 1), count // 2)
        assert [change.version for change in changes] == list(range(3, count + 2, 2))


async def test_a_watch_that_is_far_behind_decodes_one_change_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred large ones would stop the event loop."""
    async with open_store(sqlite_url(tmp_path)) as store:
        for _ in range(10):
            await store.resources.write(key("a"), {}, expected_version=None)
    decoded = list[str]()

    def counted(document: str) -> dict[str, object]:
        decoded.append(document)
        return read(document)

    async with open_store(sqlite_url(tmp_path)) as store:
        monkeypatch.setattr(feed, "read", counted)
        changes = store.resources.watch(GROUP, "Trigger", 1)
        for number in range(1, 11):
            await anext(changes)
            assert len(decoded) <= 2 * number, "the object, and what was before it"


async def test_old_entries_are_removed(url: str) -> None:
    async with open_store(url, changes_max=5) as store:
        for _ in range(10):
            await store.resources.write(key("a"), {}, expected_version=None)
        assert [change.version for change in await take(store.resources.watch(GROUP, "Trigger", 6), 5)] == [
            7,
            8,
            9,
            10,
            11,
        ]
    async with open_store(url, changes_max=5) as store:
        with pytest.raises(GoneError, match="too old resource version: 5"):
            await anext(store.resources.watch(GROUP, "Trigger", 5))
        with pytest.raises(GoneError, match="does not exist yet"):
            await anext(store.resources.watch(GROUP, "Trigger", 12))


async def test_large_changes_are_forgotten_before_they_fill_the_disk(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "CHANGES_CHARACTERS_MAX", 20_000)
    async with open_store(url) as store:
        for _ in range(30):
            await store.resources.write(key("a"), {"text": "x" * 1_000}, expected_version=None)
    async with open_store(url) as store:
        with pytest.raises(GoneError, match="too old resource version: 5 "):
            await anext(store.resources.watch(GROUP, "Trigger", 5))
        assert len(await take(store.resources.watch(GROUP, "Trigger", 26), 5)) == 5


async def test_large_changes_do_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes are read from the table again for a watch that is behind."""
    monkeypatch.setattr(feed, "TAIL_CHARACTERS_MAX", 5_000)
    database = Database(sqlite_url(tmp_path))
    made = feed.Feed(database)
    async with open_store(sqlite_url(tmp_path)) as store:
        for _ in range(10):
            await store.resources.write(key("a"), {"text": "x" * 1_000}, expected_version=None)
        await made.start()
        for _ in range(10):
            await store.resources.write(key("a"), {"text": "x" * 1_000}, expected_version=None)
        made.wake()
        versions = [change.version for change in await take(made.watch(GROUP, "Trigger", 5), 16)]
        await made.close()
        await database.close()
    assert versions == list(range(6, 22))
    assert len(made._tail) == 2  # the latest two with what was before them: 4,000 characters and more


async def test_a_watch_ends_with_its_store(url: str) -> None:
    async with open_store(url) as store:
        watch = store.resources.watch(GROUP, "Trigger", 1)

        begun = asyncio.Event()

        async def seen() -> None:
            async for _change in watch:
                begun.set()

        waiting = asyncio.create_task(seen())
        await store.resources.write(key("a"), {}, expected_version=0)
        await begun.wait()
    await asyncio.wait_for(waiting, 60)


async def test_replicas_see_each_others_writes_all_and_in_order(postgresql_url: str) -> None:
    """Eight writers on two replicas; no version is skipped, though commits of the two overlap.

    It does not wait for the poll.
    """
    async with open_store(postgresql_url, poll_s=600) as one, open_store(postgresql_url, poll_s=600) as other:
        watches = [asyncio.create_task(take(store.resources.watch("", "", 1), 80)) for store in (one, other)]

        async def write(store: Store, name: str) -> None:
            for number in range(10):
                await store.resources.write(key(name), {"spec": number}, expected_version=None)

        await asyncio.gather(
            *(
                write(store, f"{name}-{number}")
                for number in range(4)
                for name, store in (("one", one), ("other", other))
            )
        )
        for changes in await asyncio.gather(*watches):
            assert [change.version for change in changes] == list(range(2, 82))
            for name in {change.key.name for change in changes}:
                mine = [change for change in changes if change.key.name == name]
                assert all(after.previous == before.object for before, after in pairwise(mine))


async def test_a_replica_sees_a_conflict_with_another(postgresql_url: str) -> None:
    async with open_store(postgresql_url) as one, open_store(postgresql_url) as other:
        await one.resources.write(key("a"), {}, expected_version=0)
        results = await asyncio.gather(
            *(store.resources.write(key("a"), {}, expected_version=2) for store in (one, other)),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in results) == ["ConflictError", "dict"]


async def test_the_store_works_again_after_all_connections_were_lost(
    postgresql_url: str, socket_dir: Path
) -> None:
    import asyncpg  # noqa: PLC0415  # only here

    async with open_store(postgresql_url, poll_s=600) as one, open_store(postgresql_url, poll_s=600) as other:
        watch = other.resources.watch("", "", 1)
        await one.resources.write(key("a"), {}, expected_version=0)
        assert [change.version for change in await take(watch, 1)] == [2]
        admin = await asyncpg.connect(host=str(socket_dir), user="tester", database="postgres")
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        await admin.close()
        await one.resources.write(key("b"), {}, expected_version=0)
        assert [change.version for change in await take(watch, 1)] == [3]
        assert (await other.resources.list(GROUP, "Trigger"))[0] == 3


async def test_a_watch_that_is_far_behind_reads_few_large_changes_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds them until its client has read them."""
    monkeypatch.setattr(feed, "PAST_CHARACTERS", 2_500)
    async with open_store(url) as store:
        for number in range(12):
            large = {"text": "x" * (1_000 if number % 4 else 5_000)}
            await store.resources.write(key(str(number)), large, expected_version=None)
    database = Database(url)
    made = feed.Feed(database)
    past, sizes, read_past = list[int](), list[list[int]](), made._past

    async def noted(after: int) -> object:
        rows, position = await read_past(after)
        sizes.append([len(row.document) for row in rows])
        past.extend(row.version for row in rows)
        return rows, position

    monkeypatch.setattr(made, "_past", noted)
    await made.start()
    await take(made.watch("", "", 1), 12)
    await made.close()
    await database.close()
    assert past == list(range(2, 14))
    assert [len(each) for each in sizes] == [1, 2, 1] * 3
