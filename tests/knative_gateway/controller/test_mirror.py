import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from knative_gateway.controller.mirror import Mirror, version_of
from knative_gateway.errors import GoneError
from knative_gateway.ports import Change, Document, Key
from knative_gateway.resources.objects import text

KEY = Key("", "ConfigMap", "n", "x")
OTHER = Key("", "ConfigMap", "n", "y")


def stored(key: Key, version: int) -> dict[str, object]:
    metadata = {"name": key.name, "namespace": key.namespace, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": key.kind, "metadata": metadata}


class Scripted:
    """A store with prepared lists and changes. After them it reports that it has discarded the changes."""

    def __init__(self, lists: Sequence[Sequence[Document]], feeds: Sequence[Sequence[Change]]) -> None:
        self.lists, self.feeds, self.done = list(lists), list(feeds), asyncio.Event()
        self._objects: Sequence[Document] = ()
        self._definitions_asked = 0

    async def get(self, key: Key) -> Document | None:
        raise AssertionError("a mirror lists and watches")

    async def list(
        self, group: str, kind: str, namespace: str | None = None
    ) -> tuple[int, Sequence[Document]]:
        if kind == "CustomResourceDefinition":
            self._definitions_asked += 1
            if self._definitions_asked % 2:  # first for the kinds that there are, then as one of them
                self._objects = self.lists.pop(0)
        return 5, [each for each in self._objects if text(each, "kind") == kind]

    async def part(
        self,
        group: str,
        kind: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None,
        limit: int,
    ) -> tuple[int, Sequence[Document], int]:
        raise AssertionError("a mirror reads whole lists")

    async def write(
        self, key: Key, object_: Document | None, *, expected_version: int | None
    ) -> Document | None:
        raise AssertionError("a mirror only reads")

    async def update(self, objects: Mapping[Key, tuple[Document, int]]) -> Mapping[Key, Document]:
        raise AssertionError("a mirror only reads")

    async def remove(self, keys: Mapping[Key, int | None]) -> Sequence[Document]:
        raise AssertionError("a mirror only reads")

    async def watch(
        self, group: str, kind: str, after: int, *, in_turns: bool = False
    ) -> AsyncIterator[Change]:
        assert (group, kind, after) == ("", "", 5)
        for change in self.feeds.pop(0):
            yield change
        if self.lists:
            raise GoneError
        self.done.set()
        await asyncio.Event().wait()


async def mirrored(store: Scripted) -> tuple[Mirror, list[str]]:
    told: list[str] = []
    mirror = Mirror(
        store, lambda change: told.append(f"{change.type} {change.key.name}" if change else "listed")
    )
    running = asyncio.create_task(mirror.run())
    await asyncio.wait_for(store.done.wait(), 60)
    running.cancel()
    return mirror, told


async def test_changes_are_followed_from_the_list_on() -> None:
    changes = [Change("ADDED", 6, OTHER, stored(OTHER, 6)), Change("DELETED", 7, KEY, stored(KEY, 7))]
    mirror, told = await mirrored(Scripted([[stored(KEY, 3)]], [changes]))
    assert list(mirror.objects) == [OTHER]
    assert told == ["listed", "ADDED y", "DELETED x"]


async def test_an_older_version_replaces_nothing() -> None:
    changes = [Change("MODIFIED", 6, KEY, stored(KEY, 6)), Change("MODIFIED", 8, KEY, stored(KEY, 8))]
    mirror, told = await mirrored(Scripted([[stored(KEY, 7)]], [changes]))
    assert version_of(mirror.objects[KEY]) == 8
    assert told == ["listed", "MODIFIED x"]
    mirror.take(KEY, stored(KEY, 7))
    assert version_of(mirror.objects[KEY]) == 8
    mirror.take(KEY, stored(KEY, 9))
    assert version_of(mirror.objects[KEY]) == 9


async def test_deletions_during_a_lost_watch_are_reported() -> None:
    mirror, told = await mirrored(
        Scripted([[stored(KEY, 3), stored(OTHER, 4)], [stored(OTHER, 4)]], [[], []])
    )
    assert list(mirror.objects) == [OTHER]
    assert told == ["listed", "DELETED x", "listed"]


async def test_objects_of_declared_kinds_are_listed_too() -> None:
    names = {"kind": "Service", "plural": "services"}
    versions = [{"name": "v1", "served": True, "storage": True}]
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "services.serving.knative.dev"},
        "spec": {"group": "serving.knative.dev", "names": names, "scope": "Namespaced", "versions": versions},
    }

    class Declared(Scripted):
        async def list(
            self, group: str, kind: str, namespace: str | None = None
        ) -> tuple[int, Sequence[Document]]:
            version, objects = await super().list(group, kind, namespace)
            if kind == "CustomResourceDefinition":
                return version, [definition]
            mine = {**stored(KEY, 1), "apiVersion": "serving.knative.dev/v1", "kind": kind}
            return version, [mine] if group == "serving.knative.dev" else objects

    mirror, _ = await mirrored(Declared([[]], [[]]))
    assert Key("serving.knative.dev", "Service", "n", "x") in mirror.objects


def test_an_object_without_a_version_is_older_than_all() -> None:
    assert version_of(None) == version_of({}) == version_of({"metadata": {"resourceVersion": "x"}}) == 0
