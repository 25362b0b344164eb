"""Objects: writes by compare-and-set, versions in order, lists of one moment.

Each on SQLite and on PostgreSQL.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from knative_gateway.errors import ConflictError
from knative_gateway.ports import Key
from knative_gateway.store import Store, documents, open_store, resources
from tests.knative_gateway.store.counting import counted

TRIGGERS = ("eventing.knative.dev", "Trigger")


def key(name: str, namespace: str = "default", kind: str = "Trigger") -> Key:
    return Key("eventing.knative.dev", kind, namespace, name)


def made(name: str, **more: object) -> dict[str, object]:
    return {"kind": "Trigger", "metadata": {"name": name, "namespace": "default"}, **more}


def version(object_: object) -> int:
    assert isinstance(object_, dict)
    return int(object_["metadata"]["resourceVersion"])


async def test_written_objects_are_read_back_with_their_version(store: Store) -> None:
    strange = made(
        "a",
        spec={
            "text": "\ud800 \x00 \u2028 ü 🌍",
            "number": 1.5,
            "large": 2**63,
            "none": None,
            "list": [1, "a"],
        },
    )
    stored = await store.resources.write(key("a"), strange, expected_version=0)
    assert stored == await store.resources.get(key("a"))
    assert stored is not None
    assert stored["spec"] == strange["spec"]
    assert version(stored) == 2, "the first list is of version 1: 0 means any"
    assert await store.resources.get(key("b")) is None


async def test_versions_rise_over_all_kinds(store: Store) -> None:
    written = [
        await store.resources.write(key("a", kind=kind), made("a"), expected_version=0)
        for kind in ("Trigger", "Broker", "Other")
    ]
    assert [version(each) for each in written] == [2, 3, 4]
    listed, objects = await store.resources.list(*TRIGGERS)
    assert listed == 4
    assert [version(each) for each in objects] == [2]


async def test_a_list_is_sorted_and_may_be_of_one_namespace(store: Store) -> None:
    for namespace, name in [("b", "Z"), ("b", "a"), ("a", "b"), ("a", "a-b"), ("a", "a.b")]:
        await store.resources.write(key(name, namespace), {"at": [namespace, name]}, expected_version=None)
    _, everything = await store.resources.list(*TRIGGERS)
    assert [each["at"] for each in everything] == [
        ["a", "a-b"],
        ["a", "a.b"],
        ["a", "b"],
        ["b", "Z"],
        ["b", "a"],
    ]
    _, some = await store.resources.list(*TRIGGERS, namespace="b")
    assert [each["at"] for each in some] == [["b", "Z"], ["b", "a"]]


async def test_the_parts_of_a_list_are_the_list(store: Store) -> None:
    for namespace, name in [("b", "Z"), ("b", "a"), ("a", "b"), ("a", "a-b"), ("a", "a.b")]:
        metadata = {"namespace": namespace, "name": name}
        await store.resources.write(key(name, namespace), {"metadata": metadata}, expected_version=None)
    await store.resources.write(key("other", kind="Broker"), made("other"), expected_version=None)
    chosen: list[str | None] = [None, "a", "b", "none"]
    for one in chosen:
        listed, every = await store.resources.list(*TRIGGERS, namespace=one)
        for limit in (1, 2, 5, 7):
            found, after, remaining = list[Any](), None, len(every)
            while remaining:
                of, some, remaining = await store.resources.part(*TRIGGERS, one, after=after, limit=limit)
                found += some
                assert (of, remaining) == (listed, len(every) - len(found))
                after = found[-1]["metadata"]["namespace"], found[-1]["metadata"]["name"]
            assert found == every
    assert await store.resources.part(*TRIGGERS, after=("b", "z"), limit=1) == (listed, [], 0)


async def test_a_part_of_a_list_reads_no_other_objects(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(url) as store:
        await asyncio.gather(
            *(
                store.resources.write(key(f"t{number:02}"), made(f"t{number:02}"), expected_version=0)
                for number in range(40)
            )
        )
    decoded = list[str]()

    def noted(document: str) -> Any:
        decoded.append(document)
        return documents.read(document)

    monkeypatch.setattr(resources, "read", noted)
    async with open_store(url) as store:
        _, some, remaining = await store.resources.part(*TRIGGERS, after=("default", "t09"), limit=3)
        assert [each["metadata"]["name"] for each in some] == ["t10", "t11", "t12"]  # type: ignore[index]
        assert (remaining, len(decoded)) == (27, 3)


@pytest.mark.parametrize("expected", [1, 2, 7])
async def test_a_missing_object_has_no_version(store: Store, expected: int) -> None:
    with pytest.raises(ConflictError, match="does not exist"):
        await store.resources.write(key("a"), made("a"), expected_version=expected)
    with pytest.raises(ConflictError, match="does not exist"):
        await store.resources.write(key("a"), None, expected_version=expected)


async def test_a_write_on_another_version_is_refused_and_changes_nothing(store: Store) -> None:
    first = await store.resources.write(key("a"), made("a", spec=1), expected_version=0)
    with pytest.raises(ConflictError, match="exists already"):
        await store.resources.write(key("a"), made("a"), expected_version=0)
    second = await store.resources.write(key("a"), made("a", spec=2), expected_version=version(first))
    for object_ in (made("a"), None):
        with pytest.raises(ConflictError, match="has version 3, not 2"):
            await store.resources.write(key("a"), object_, expected_version=version(first))
    assert await store.resources.get(key("a")) == second
    assert (await store.resources.list(*TRIGGERS))[0] == 3, "a refused write takes no version"


async def test_a_deleted_object_comes_once_more_with_a_version_of_its_own(store: Store) -> None:
    stored = await store.resources.write(key("a"), made("a", spec=1), expected_version=None)
    gone = await store.resources.write(key("a"), None, expected_version=version(stored))
    assert gone is not None
    assert (gone["spec"], version(gone)) == (1, 3)
    assert await store.resources.get(key("a")) is None
    assert await store.resources.write(key("a"), None, expected_version=None) is None
    assert (await store.resources.list(*TRIGGERS))[0] == 3, "deleting nothing takes no version"


async def test_several_are_deleted_at_once_each_with_a_version_of_its_own(store: Store) -> None:
    first, second, third = [
        await store.resources.write(key(name), made(name), expected_version=0) for name in "abc"
    ]
    changed = await store.resources.write(key("b"), made("b", spec=1), expected_version=version(second))
    wanted = {key("nothing"): None, key("a"): version(first), key("b"): version(second), key("c"): None}
    gone = await store.resources.remove(wanted)
    assert [(each["metadata"], each["kind"]) for each in gone] == [
        ({"name": name, "namespace": "default", "resourceVersion": str(version(changed) + step)}, "Trigger")
        for step, name in ((1, "a"), (2, "c"))
    ]
    assert (await store.resources.list(*TRIGGERS)) == (version(changed) + 2, [changed])
    changes = store.resources.watch(*TRIGGERS, version(third))
    told = [await anext(changes) for _ in range(3)]
    assert [(each.type, each.key.name, each.version - version(changed)) for each in told] == [
        ("MODIFIED", "b", 0),
        ("DELETED", "a", 1),
        ("DELETED", "c", 2),
    ]
    assert not await store.resources.remove({key("a"): None})


async def test_an_update_stores_the_objects_that_have_the_expected_version(store: Store) -> None:
    first = await store.resources.write(key("a"), made("a"), expected_version=0)
    assert first is not None
    await store.resources.write(key("b"), made("b"), expected_version=0)
    wanted = {
        key("a"): (made("a", spec=1), version(first)),
        key("b"): (made("b", spec=1), version(first)),
        key("c"): (made("c"), 0),
    }
    stored = await store.resources.update(wanted)
    assert list(stored) == [key("a"), key("c")]
    assert [version(each) for each in stored.values()] == [version(first) + 2, version(first) + 3]
    _, found = await store.resources.list(*TRIGGERS)
    assert [each.get("spec") for each in found] == [1, None, None]
    changes = store.resources.watch(*TRIGGERS, version(first) + 1)
    assert [(each.type, each.key.name) for each in [await anext(changes) for _ in range(2)]] == [
        ("MODIFIED", "a"),
        ("ADDED", "c"),
    ]
    assert await store.resources.update({key("c"): (made("c"), 0)}) == {}


async def test_of_writers_that_saw_the_same_one_wins(store: Store) -> None:
    await store.resources.write(key("a"), made("a"), expected_version=0)
    results = await asyncio.gather(
        *(store.resources.write(key("a"), made("a", spec=number), expected_version=2) for number in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, ConflictError) for each in results) == 7
    assert sum(isinstance(each, dict) for each in results) == 1


async def test_a_writer_that_is_called_off_leaves_nothing_half_done(store: Store) -> None:
    """A cancellation is possible at any point: the store continues, and each write is stored completely or
    not at all, in the feed and in the objects.
    """
    done: list[str] = []

    async def write(name: str) -> None:
        await store.resources.write(key(name), made(name), expected_version=0)
        done.append(name)

    for number in range(40):
        writing = asyncio.create_task(write(f"t{number:02}"))
        for _ in range(number):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait({writing})
    await write("zlast")
    newest, objects = await store.resources.list(*TRIGGERS)
    # Every object has metadata.
    names = [str(each["metadata"]["name"]) for each in objects]  # type: ignore[index]
    assert set(done) <= set(names)
    changes = store.resources.watch(*TRIGGERS, 1)
    told = [await anext(changes) for _ in names]
    assert [change.key.name for change in told] == names
    assert [change.version for change in told] == list(range(2, newest + 1))


async def test_lists_share_the_objects_that_did_not_change(store: Store) -> None:
    """Watches that begin together, and the pages of a list, hold them once."""
    for name in "abc":
        await store.resources.write(key(name), made(name), expected_version=0)
    _, before = await store.resources.list(*TRIGGERS)
    await store.resources.write(key("b"), made("b", spec=1), expected_version=None)
    _, after = await store.resources.list(*TRIGGERS)
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True]
    assert after[1]["spec"] == 1
    await store.resources.write(key("a"), None, expected_version=None)
    assert [each["metadata"]["name"] for each in (await store.resources.list(*TRIGGERS))[1]] == ["b", "c"]  # type: ignore[index]


async def test_a_burst_of_writes_costs_few_commits(store: Store) -> None:
    """Objects created at once, with one that is refused among them; versions rise without a gap in the order
    of the writes.
    """
    with counted() as asked:
        written = await asyncio.gather(
            *(
                store.resources.write(key(name), made(name), expected_version=0)
                for name in ("a", "b", "a", "c")
            ),
            return_exceptions=True,
        )
    assert [type(each) if isinstance(each, Exception) else version(each) for each in written] == [
        2,
        3,
        ConflictError,
        4,
    ]
    assert asked["commits"] == 1
    changes = store.resources.watch(*TRIGGERS, 1)
    assert [(each.version, each.key.name) for each in [await anext(changes) for _ in range(3)]] == [
        (2, "a"),
        (3, "b"),
        (4, "c"),
    ]
    assert (await store.resources.list(*TRIGGERS))[0] == 4


async def test_threads_encode_and_decode_large_objects(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PostgreSQL, the rest of the work is done on the event loop."""
    threads = set[int]()
    for name in ("read", "written"):
        call = getattr(resources, name)

        def noted(document: Any, *, call: Callable[[Any], Any] = call) -> Any:
            threads.add(threading.get_ident())
            return call(document)

        monkeypatch.setattr(resources, name, noted)
    large = made("a", data={f"k{number}": "x" for number in range(1_000)})
    async with open_store(url) as store:
        await store.resources.write(key("a"), large, expected_version=0)
        await store.resources.update({key("b"): (large, 0)})
    async with open_store(url) as store:
        assert [each["data"] for each in (await store.resources.list(*TRIGGERS))[1]] == [large["data"]] * 2
        await store.resources.write(key("a"), None, expected_version=None)
        await store.resources.remove({key("b"): None})
    assert threads
    assert threading.get_ident() not in threads
