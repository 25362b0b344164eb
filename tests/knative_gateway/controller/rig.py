"""A controller over a real store, logs in memory, and a data plane that the test controls."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from knative_gateway.controller.controller import Controller, Times
from knative_gateway.controller.deciding.plan import Settings
from knative_gateway.ports import Key, Route, Routes
from knative_gateway.resources.conditions import READY, status_of
from knative_gateway.resources.objects import Object, uid_of
from knative_gateway.store import Store, open_store, sqlite_url
from tests.knative_gateway.controller.world import BASE, NOW_MS, Logs, World

QUICK = Times(settle=0, apply=0.05, retry=0.01, figures=3600, logs=3600, events=3600)


class Plane:
    """A data plane that serves all it is given, but for `failing` subscribers, while it `works`."""

    def __init__(self) -> None:
        self.applied: list[Routes] = []
        self.ended: list[str] = []
        """The uids of objects that were deleted."""
        self.on_change: Callable[[str], None] = lambda _path: None
        self.not_placed: dict[str, str] = {}
        self.late: set[str] = set()
        """Paths that it takes its time for."""
        self._works = True
        self._wanted = Routes(0, {})
        self._served: dict[str, Route] = {}

    @property
    def works(self) -> bool:
        return self._works

    @works.setter
    def works(self, works: bool) -> None:
        self._works = works
        self._serve()

    def use(self, routes: Routes) -> None:
        self._wanted = routes
        self._serve()

    def removed(self, objects: Sequence[Object]) -> None:
        self.ended += [uid_of(each) for each in objects]

    def served(self, path: str) -> Route | None:
        return self._served.get(path)

    def failing(self, path: str) -> Mapping[str, str]:
        route = self._served.get(path)
        uids = {each.uid for each in (route.subscribers if route else ())}
        return {uid: why for uid, why in self.not_placed.items() if uid in uids}

    def _serve(self) -> None:
        if not self._works:
            return
        self.applied.append(self._wanted)
        paths = {*self._served, *self._wanted.by_path} - self.late
        self._served = {path: route for path, route in self._wanted.by_path.items() if path in paths}
        for path in paths:
            self.on_change(path)


class Here:
    """The parts that a test uses."""

    def __init__(self, store: Store) -> None:
        self.store, self.plane, self.logs = store, Plane(), Logs()
        self._world = World()
        self.now_ms = NOW_MS
        self.counters: dict[str, dict[str, int]] = {}

    def controller(
        self, *, counting: bool = True, plane: Plane | None = None, leads: bool = True
    ) -> Controller:
        counters = (lambda: self.counters) if counting else None
        settings = Settings(BASE, partitions=2, delete_logs=counting)
        stored = self.store
        return Controller(
            stored.resources,
            self.logs,
            plane or self.plane,
            stored.cursors,
            settings,
            counters=counters,
            leads=leads,
            times=QUICK,
            clock_ms=lambda: self.now_ms,
        )

    async def send(self, object_: Mapping[str, object], namespace: str = "default") -> Key:
        key = self._world.send(object_, namespace=namespace)
        written = await self.store.resources.write(key, self._world.objects[key], expected_version=None)
        assert written is not None
        return key

    async def delete(self, key: Key) -> None:
        self._world.objects.pop(key)
        await self.store.resources.write(key, None, expected_version=None)

    async def until(self, key: Key, holds: Callable[[Object | None], bool]) -> Object:
        """The object, once it is as it should be."""
        async with asyncio.timeout(60):
            version, _ = await self.store.resources.list(key.group, key.kind)
            found = await self.store.resources.get(key)
            if not holds(found):
                async for change in self.store.resources.watch(key.group, key.kind, version):
                    found = None if change.type == "DELETED" else change.object
                    if change.key == key and holds(found) and holds(await self.store.resources.get(key)):
                        break
        return found or {}

    async def ready(self, key: Key, status: str = "True") -> Object:
        return await self.until(
            key, lambda object_: object_ is not None and status_of(object_, READY) == status
        )


@asynccontextmanager
async def here_at(path: Path) -> AsyncIterator[Here]:
    async with open_store(sqlite_url(path)) as store:
        yield Here(store)


async def soon(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that no feed reports."""
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110  the database has no event
            await asyncio.sleep(0.005)
