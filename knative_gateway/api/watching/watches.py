"""Watches: the changes of a collection as they happen, one JSON document on each line. [io]

Without a version, or with version 0, the existing objects come first, as ADDED. With selectors, an object
that begins to match is ADDED, and one that stops matching is DELETED. A version that is too old ends the
watch with an ERROR of code 410: the client must list again.

Spec: Kubernetes API concepts, "Efficient detection of changes".
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Final

from knative_gateway.api.listing import number, object_document, selector
from knative_gateway.api.negotiation import Form
from knative_gateway.api.objects import Objects, in_version
from knative_gateway.api.watching.following import Following
from knative_gateway.api.watching.lines import Lines, pieces
from knative_gateway.errors import GatewayError, GoneError
from knative_gateway.http.places import Place, Places
from knative_gateway.http.turns import Turns
from knative_gateway.ports import Change, ResourceStore
from knative_gateway.resources.documents.large import is_large
from knative_gateway.resources.kinds import Kind
from knative_gateway.resources.objects import Object, child
from knative_gateway.resources.printing import column_definitions
from knative_gateway.resources.refusals import StatusError, gone
from knative_gateway.resources.selectors import Selector

TIMEOUT_S: Final = 3_600
"""The default and the maximum. The client opens a new watch afterwards."""
ALLOWED_S: Final = 5.0
"""A watch continues at most for this time after its token was revoked or has expired."""
BOOKMARK_S: Final = 60
INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}
ALLOWED_OBJECTS: Final = 100
"""The access check runs once for this many objects of the initial list: a slow client can take very long to
read the list.
"""
OBJECTS_A_TURN: Final = 16
"""How many objects of the initial list are sent in a turn: about a millisecond of work."""
CHANGES_A_TURN: Final = 8
"""How many changes are sent in a turn."""
LARGE_CHARACTERS: Final = 64 << 10
"""A change or a list with more characters is sent in a place."""
HELD_VALUES: Final = 2_000
"""So is a list with more values. Twice as many take about a millisecond to count."""
Event = dict[str, object]


@dataclass(frozen=True, slots=True)
class Watch:
    """The parameters of a watch."""

    kind: Kind
    namespace: str
    name: str
    matches: Selector
    after: int
    """The version after which changes are sent. 0: begin with the existing objects."""
    form: Form
    include: str
    bookmarks: bool
    initial_end: bool
    """Whether to send a bookmark after the existing objects."""
    timeout_s: int


def watch_of(kind: Kind, namespace: str, name: str, query: Mapping[str, str], form: Form) -> Watch:
    """Return the watch that a request asks for.

    Raises:
      StatusError: a parameter is not valid (400).
    """
    initial = query.get("sendInitialEvents", "").lower() in {"1", "true"}
    return Watch(
        kind,
        namespace,
        name,
        selector(kind, query),
        0 if initial else number(query, "resourceVersion"),
        form,
        query.get("includeObject", "Metadata"),
        query.get("allowWatchBookmarks", "").lower() in {"1", "true"},
        initial,
        min(number(query, "timeoutSeconds") or TIMEOUT_S, TIMEOUT_S),
    )


@dataclass(frozen=True, slots=True)
class Client:
    """Who watches. `key`: the user. `allowed`: whether it may read on. `cut`: closes its connection."""

    key: Hashable
    allowed: Callable[[], bool]
    cut: Callable[[], None] = lambda: None


class Watches:
    """All watches. They end when `closing` is set.

    Law: a watch that waits, also for its client, holds a position, a few small changes, and a piece of a
    line. Only a watch in a place holds a large object or a large list.
    """

    def __init__(
        self,
        objects: Objects,
        store: ResourceStore,
        closing: asyncio.Event,
        *,
        now_ms: Callable[[], int],
        places: Places | None = None,
    ) -> None:
        self._objects: Final = objects
        self._store: Final = store
        self._closing: Final = closing
        self._now_ms: Final = now_ms
        # A thousand watches may begin with a thousand objects each, or at a version with thousands of changes
        # after it.
        self._turns: Final = Turns()
        self._lines: Final = Lines(self._turns)
        self._places: Final = places or Places()

    async def lines(self, watch: Watch, client: Client) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch, in pieces, until its timeout, until `closing` is set, or until
        `client.allowed` returns False.
        """
        position = watch.after
        try:
            if not position:
                async with aclosing(self._initial(watch, client)) as initial:
                    async for found in initial:
                        if isinstance(found, int):
                            position = found
                        else:
                            yield found
                if watch.initial_end:
                    yield await self._own(_bookmark(watch, position, INITIAL_END))
            async with aclosing(self._changes(watch, client, position)) as changes:
                async for piece in changes:
                    yield piece
        except _EndedError:
            return
        except GoneError as error:
            yield await self._own({"type": "ERROR", "object": gone(str(error)).status()})
        except GatewayError as error:
            status = StatusError(500, "InternalError", str(error)).status()
            yield await self._own({"type": "ERROR", "object": status})

    async def _initial(self, watch: Watch, client: Client) -> AsyncGenerator[bytes | int, None]:
        """Yield the lines of the existing objects, then the version at which they existed."""
        async with AsyncExitStack() as stack:
            place: Place | None = None
            version, present = await self._objects.list(watch.kind, watch.namespace)
            if is_large(present, values_max=HELD_VALUES, characters_max=LARGE_CHARACTERS):
                if not self._places.is_free(client.key):
                    present = ()
                place = await self._place(client, stack)
                if not present:
                    version, present = await self._objects.list(watch.kind, watch.namespace)
            for index, each in enumerate(present):
                # The token may expire while a slow client reads the list.
                if not index % ALLOWED_OBJECTS and not client.allowed():
                    raise _EndedError
                if not index % OBJECTS_A_TURN:
                    await self._turns.turn()
                    # With many other watches, the rest would take longer than the gateway has for its end.
                    if self._closing.is_set():
                        raise _EndedError
                if _is_meant(watch, each) and watch.matches(each):
                    async with aclosing(self._sent(await self._line("ADDED", watch, each), place)) as sent:
                        async for piece in sent:
                            yield piece
        yield version

    async def _changes(self, watch: Watch, client: Client, after: int) -> AsyncGenerator[bytes, None]:
        """Yield the lines of the changes after a version."""
        loop = asyncio.get_running_loop()
        ends, marks, asked = loop.time() + watch.timeout_s, loop.time() + BOOKMARK_S, loop.time()
        count = 0
        following = Following(self._store, after, self._closing)
        try:
            while not self._closing.is_set() and loop.time() < ends:
                if loop.time() >= asked + ALLOWED_S:
                    if not client.allowed():
                        return
                    asked = loop.time()
                if await following.come(min(ends - loop.time(), marks - loop.time(), ALLOWED_S)):
                    if not count % CHANGES_A_TURN:
                        await self._turns.turn()
                    count += 1
                    async with aclosing(self._change(watch, client, following)) as sent:
                        async for piece in sent:
                            yield piece
                if loop.time() >= marks:
                    marks = loop.time() + BOOKMARK_S
                    if watch.bookmarks:
                        await following.forget(following.position)
                        yield await self._own(_bookmark(watch, following.position, {}))
            if watch.bookmarks:
                yield await self._own(_bookmark(watch, following.position, {}))
        except StopAsyncIteration:
            return  # the store is closed
        finally:
            await following.close()

    async def _change(
        self, watch: Watch, client: Client, following: Following
    ) -> AsyncGenerator[bytes, None]:
        """Yield the line of the change that has come, if it is one for this watch."""
        type_ = _type(watch, following.change)
        if type_ is None:
            following.done()
            return
        version = following.position
        async with AsyncExitStack() as stack:
            place: Place | None = None
            line: bytes | None = None
            if following.change.characters > LARGE_CHARACTERS:
                sends = _key(type_, watch, following.change.object)
                if not self._places.is_free(client.key, sends):
                    await following.forget(version - 1)
                place = await self._place(client, stack, sends)
                line = place.held.line
                if line is not None:
                    await following.forget(version)
                while line is None and not await following.come(ALLOWED_S):
                    if self._closing.is_set():
                        raise _EndedError
            if line is None:
                making = self._line(type_, watch, in_version(watch.kind, following.change.object))
                following.done()
                line = await making
            if place is not None:
                place.held.line = line
            async with aclosing(self._sent(line, place)) as sent:
                async for piece in sent:
                    yield piece

    async def _place(self, client: Client, stack: AsyncExitStack, sends: Hashable = None) -> Place:
        """Wait for a place. `sends`: see `Places.place`."""
        waits = not self._places.is_free(client.key, sends)
        place = await stack.enter_async_context(
            self._places.place(client.key, client.cut, sends=sends, stopping=self._closing)
        )
        if place is None or (waits and not client.allowed()):
            raise _EndedError
        return place

    async def _line(self, type_: str, watch: Watch, object_: Object) -> bytes:
        return await self._lines.line(
            _key(type_, watch, object_),
            lambda: {
                "type": type_,
                "object": object_document(
                    watch.kind, object_, watch.form, now_ms=self._now_ms(), include=watch.include
                ),
            },
        )

    async def _sent(self, line: bytes, place: Place | None) -> AsyncGenerator[bytes, None]:
        for piece in pieces(line):
            if place is None:
                yield piece
            else:
                await self._turns.turn()
                with place.sending(len(piece)):
                    yield piece

    async def _own(self, event: Event) -> bytes:
        return await self._lines.line(None, lambda: event)


def _key(type_: str, watch: Watch, object_: Object) -> Hashable:
    """Equal for watches whose lines of an object are equal; None: no other watch has this line."""
    version = child(object_, "metadata").get("resourceVersion")
    # The ages in a Table depend on the time.
    if version is None or watch.form is Form.TABLE:
        return None
    return type_, watch.kind.api_version, watch.kind.kind, watch.form, version


class _EndedError(Exception):
    """The gateway closes, or the client may not read on."""


def _is_meant(watch: Watch, object_: Object) -> bool:
    metadata = object_["metadata"]
    assert isinstance(metadata, Mapping)
    return (not watch.name or metadata.get("name") == watch.name) and (
        not watch.namespace or metadata.get("namespace") == watch.namespace
    )


def _type(watch: Watch, change: Change) -> str | None:
    """The type of the event for this watch; None: it is not for this watch."""
    if (change.key.group, change.key.kind) != (watch.kind.group, watch.kind.kind):
        return None
    if not _is_meant(watch, change.object):
        return None
    # The change is compared before and after, because a selector may begin or stop to match without a
    # deletion.
    now = change.type != "DELETED" and watch.matches(change.object)
    before = change.previous is not None and watch.matches(change.previous)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _bookmark(watch: Watch, version: int, annotations: Mapping[str, str]) -> Event:
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if watch.form is Form.TABLE:
        heads = column_definitions(watch.kind.columns)
        document: Event = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": heads,
            "rows": [],
        }
        return {"type": "BOOKMARK", "object": document}
    metadata |= {"creationTimestamp": None, **({"annotations": annotations} if annotations else {})}
    kind, api_version = (watch.kind.kind, watch.kind.api_version)
    if watch.form is Form.METADATA:
        kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
    return {"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api_version, "metadata": metadata}}
