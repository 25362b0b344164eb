"""The kinds that are served now: the built-in ones, and those of stored CustomResourceDefinitions. [io]

With replicas, any gateway may store a definition; the others follow through the store.
"""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from knative_gateway.errors import GoneError, UnavailableError
from knative_gateway.ports import ResourceStore
from knative_gateway.resources.kinds import BUILT_IN, EXTENSIONS, OURS, definition
from knative_gateway.resources.objects import Object, name_of, put
from knative_gateway.running.supervising import Supervisor

DEFINITION: Final = "CustomResourceDefinition"
_AGAIN_S: Final = 1.0

_log: Final = structlog.get_logger("knative_gateway.api")


class Definitions:
    """`registry` has the kinds that are served. It follows the store from `start` to `close`."""

    def __init__(self, store: ResourceStore, *, started: str, tasks: Supervisor | None = None) -> None:
        """Create the definitions. `started` (RFC 3339) is the creation time of the built-in kinds."""
        self._store: Final = store
        self._supervisor: Final = tasks or Supervisor()
        self.registry = BUILT_IN
        self._version = 0
        built_in = (put(definition(kind, started), ("metadata", "resourceVersion"), "1") for kind in OURS)
        self.built_in: Final[dict[str, Object]] = {name_of(each): each for each in built_in}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Read the stored definitions, and begin to follow the store."""
        await self.refresh()
        self._task = self._supervisor.keep("api.definitions", self._follow, finished=lambda: self._closed)

    async def close(self) -> None:
        """Stop following the store."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def refresh(self) -> int:
        """Read the definitions and return their version."""
        version, stored = await self._store.list(EXTENSIONS, DEFINITION)
        # two refreshes may run concurrently, and the older result may arrive last
        if version >= self._version:
            # Built-in kinds come first: a stored definition cannot replace one of them.
            self._version, self.registry = version, BUILT_IN.with_definitions(stored)
        return version

    async def _follow(self) -> None:
        version = self._version
        while True:
            try:
                async for change in self._store.watch(EXTENSIONS, DEFINITION, version):
                    version = max(change.version, await self.refresh())
                self._closed = True  # because the store is closed
                return
            # The changes after our version were removed. Reading the definitions again gives a new version.
            except GoneError:
                version = 0
            except UnavailableError as error:
                _log.warning("definitions_interrupted", error=str(error))
            with suppress(UnavailableError):
                version = version or await self.refresh()
            await asyncio.sleep(_AGAIN_S)
