"""[io] Reads what a gateway has, for all views of a session.

Laws: one reading at a time. A view that is opened shows what was there then, or later. An open view uses a
reading for at least `FRESH_S`, and for a hundred times as long as it took, so that it costs the gateway less
than a hundredth of a core.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from web_console.figures.rates import History
from web_console.gateway.api import Api, ApiError
from web_console.gateway.rows import Key, Receiver, Source, collection, receiver_of, records, source_of

FRESH_S: Final = 5.0
FRESH_S_MAX: Final = 300.0
ROWS_MAX: Final = 20_000
"""Objects of one kind that a reading has. What is left out is said in the page."""
_PART: Final = 500
"""Rows of one request. The gateway needs about a tenth of a millisecond for each, in short steps."""
_NAMESPACES_MAX: Final = 500
_KEPT_MAX: Final = 4
_HISTORIES_MAX: Final = 400
_RATE_S: Final = 75.0
"""The gateway writes the counters of a subscriber twice in a minute."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a namespace has, or all of them. `is_whole`: nothing was left out."""

    sources: Sequence[Source]
    receivers: Sequence[Receiver]
    namespaces: Sequence[str]
    is_whole: bool
    at_s: float
    took_s: float

    @property
    def begun_s(self) -> float:
        """When it began."""
        return self.at_s - self.took_s

    @property
    def fresh_s(self) -> float:
        """How long it is used."""
        return fresh_s(self.took_s)


def fresh_s(took_s: float) -> float:
    """Return how long a reading is used that took the gateway `took_s`: so it has a hundredth of the time."""
    return min(max(FRESH_S, 100 * took_s), FRESH_S_MAX)


class Inventory:
    """The readings of a session."""

    def __init__(self, api: Api) -> None:
        self._api: Final = api
        self._reading: Final = asyncio.Lock()
        self._kept: Final[dict[str, Listing]] = {}
        self._histories: Final[dict[Key, History]] = {}

    async def read(self, namespace: str, *, anew: bool = False) -> Listing:
        """Return what a namespace has; empty: all namespaces. `anew`: a view was opened.

        Raises:
            ApiError: the gateway refuses it.
            AwayError: the gateway does not answer.
        """
        asked = time.monotonic()
        async with self._reading:
            kept = self._kept.get(namespace)
            # A person who loads a page again wants to see what was changed just now: views that were opened
            # during a reading share the next one.
            if kept is not None and (
                asked <= kept.begun_s if anew else time.monotonic() - kept.at_s < kept.fresh_s
            ):
                return kept
            made = await self._read(namespace)
            self._kept.pop(namespace, None)
            self._kept[namespace] = made
            if len(self._kept) > _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            return made

    def rate(self, listing: Listing, receiver: Receiver) -> float | None:
        """Return the deliveries in a second; None before they were read twice."""
        if receiver.delivered is None:
            return None
        # Last used last: the first one is removed if there are too many.
        history = self._histories.pop(receiver.key, None) or History(_RATE_S)
        self._histories[receiver.key] = history
        if not history.counts or history.counts[-1][0] < listing.at_s:
            history.add(listing.at_s, receiver.delivered)
        if len(self._histories) > _HISTORIES_MAX:
            del self._histories[next(iter(self._histories))]
        return history.rate

    async def _read(self, namespace: str) -> Listing:
        begun = time.monotonic()
        found = {kind: await self._rows(kind, namespace) for kind in _KINDS}
        sources = [source_of(kind, row) for kind in _SOURCES for row in found[kind][0]]
        receivers = [receiver_of(kind, row) for kind in _RECEIVERS for row in found[kind][0]]
        namespaces = await self._namespaces()
        now = time.monotonic()
        is_whole = all(whole for _, whole in found.values())
        return Listing(sources, receivers, namespaces, is_whole, now, now - begun)

    async def _rows(self, kind: str, namespace: str) -> tuple[Sequence[dict[str, Any]], bool]:
        """Return the rows of a kind, and whether they are all."""
        path, rows = collection(kind, quote(namespace, safe="")), list[dict[str, Any]]()
        # Only the metadata names the namespace of an object; it is much larger than the cells.
        query = {"limit": str(_PART), "includeObject": "None" if namespace else "Metadata"}
        while len(rows) < ROWS_MAX:
            table = await self._api.get(path, query, as_table=True)
            rows += records(table, namespace)
            after = (table.get("metadata") or {}).get("continue")
            if not after:
                return rows, True
            query["continue"] = str(after)
        return rows, False

    async def _namespaces(self) -> Sequence[str]:
        """Return the names of the namespaces; of none if the user may not list them."""
        query = {"limit": str(_NAMESPACES_MAX), "includeObject": "None"}
        try:
            table = await self._api.get("/api/v1/namespaces", query, as_table=True)
        except ApiError as error:
            if error.code == 403:
                return ()
            raise
        return list(_names(table))


_SOURCES: Final = ("broker", "channel", "inmemorychannel")
_RECEIVERS: Final = ("trigger", "subscription")
_KINDS: Final = (*_SOURCES, *_RECEIVERS)


def _names(table: Any) -> Iterator[str]:
    return (str(record.get("name", ""))[:253] for record in records(table, "-"))
