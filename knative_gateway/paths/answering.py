"""[io] Requests for stored events and for the path of one event, for the API.

Laws: they take turns with trials of filters: at most half of the places of a process are of one namespace,
and at most `trying.WAITING_MAX` requests of a namespace wait or run. One takes at most `READ_S_MAX` seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from knative_gateway.controller.deciding.sources import names_of
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.errors import UnavailableError
from knative_gateway.paths import stored
from knative_gateway.paths.asked import traced_of, wanted_of
from knative_gateway.paths.following import Followed, Serving
from knative_gateway.ports import CursorStore, EventLog
from knative_gateway.resources.objects import Object, key_of, namespace_of, uid_of
from knative_gateway.resources.refusals import StatusError
from knative_gateway.trying import READ_S_MAX, Trials, in_thread


class Paths:
    """Answers the requests of one process."""

    def __init__(self, serving: Serving, events: EventLog, cursors: CursorStore, trials: Trials) -> None:
        self._serving: Final = serving
        self._events: Final = events
        self._cursors: Final = cursors
        self._trials: Final = trials

    async def events(self, source: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Return stored events of a Broker or Channel, the newest first.

        Raises:
            StatusError: the request is refused.
            UnavailableError: the log is not available.
        """
        async with self._turn(source) as worker:
            wanted = await in_thread(partial(wanted_of, options))
            return await stored.listed(self._events, worker.wanted.log, wanted)

    async def trace(self, source: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Return the path of one event of a Broker or Channel.

        Raises:
            StatusError: the request is refused.
            UnavailableError: the log or the store is not available.
        """
        async with self._turn(source) as worker:
            traced = await in_thread(partial(traced_of, options))
            return await Followed(self._serving, self._events, self._cursors, worker).answer(traced)

    @asynccontextmanager
    async def _turn(self, source: Object) -> AsyncIterator[RouteWorker]:
        path, _ = names_of(key_of(source))
        async with self._trials.place(namespace_of(source)):
            worker = self._serving.worker_at(path)
            if worker is None or worker.wanted.uid != uid_of(source):
                message = "its events are not served now: see its conditions, and try again"
                raise StatusError(503, "ServiceUnavailable", message)
            try:
                async with asyncio.timeout(READ_S_MAX):
                    yield worker
            except TimeoutError:
                message = f"the events could not be read within {READ_S_MAX:.0f} s: ask for fewer"
                raise UnavailableError(message) from None
