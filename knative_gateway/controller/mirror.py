"""[io] All objects of the store, in memory.

An object is never replaced by an older version of itself, no matter whether list, watch or an own write
reports it first.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from knative_gateway.errors import GatewayError, GoneError
from knative_gateway.ports import Change, Key, ResourceStore
from knative_gateway.resources.kinds import BUILT_IN, EXTENSIONS, GATEWAY, LOG
from knative_gateway.resources.objects import Object, key_of, text

RETRY_S: Final = 1.0
"""The pause before a retry when the store is not available."""

log = structlog.get_logger("knative_gateway.controller")


class Mirror:
    """`objects`: all objects that are known now."""

    def __init__(self, store: ResourceStore, on_change: Callable[[Change | None], None]) -> None:
        """`on_change` is called after each change with the change, and with None after a list of
        all objects.
        """
        self.objects: Final[dict[Key, Object]] = {}
        self._store: Final = store
        self._on_change: Final = on_change

    async def run(self) -> None:
        """List all objects, then follow the changes, until cancelled.

        Lists again if the store has discarded the changes after our version, or was not available.
        """
        while True:
            try:
                await self._follow(await self._list())
            except GoneError:
                log.info("watch_expired")
            except GatewayError as error:
                log.warning("store_away", reason=str(error))
                await asyncio.sleep(RETRY_S)

    def take(self, key: Key, object_: Object) -> None:
        """Use our own write at once. The watch reports it again later."""
        if version_of(object_) > version_of(self.objects.get(key)):
            self.objects[key] = object_

    async def _list(self) -> int:
        """List all objects. Returns the version from which to follow."""
        # The version of the first list: changes during the other lists are then reported by the watch.
        after, definitions = await self._store.list(EXTENSIONS, "CustomResourceDefinition")
        found: dict[Key, Object] = {}
        kinds = [(kind.group, kind.kind) for kind in BUILT_IN.with_definitions(definitions).stored()]
        for group, kind in (*kinds, (GATEWAY, LOG)):
            _, objects = await self._store.list(group, kind)
            found |= {key_of(object_): object_ for object_ in objects}
        # Deletions that the watch could not report, because it was interrupted.
        gone = [(key, object_) for key, object_ in self.objects.items() if key not in found]
        self.objects.update(found)
        for key, object_ in gone:
            del self.objects[key]
            self._on_change(Change("DELETED", after, key, object_, object_))
        self._on_change(None)
        return after

    async def _follow(self, after: int) -> None:
        async for change in self._store.watch("", "", after):
            # The list, or our own write, was faster than the watch.
            if change.version <= version_of(self.objects.get(change.key)):
                continue
            if change.type == "DELETED":
                self.objects.pop(change.key, None)
            else:
                self.objects[change.key] = change.object
            self._on_change(change)


def version_of(object_: Object | None) -> int:
    """Return the version of an object; 0 if it does not exist."""
    written = text(object_, "metadata", "resourceVersion")
    return int(written) if written.isdecimal() else 0
