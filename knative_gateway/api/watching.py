"""Watches: the changes of a collection as they happen, one JSON document on each line. [io]

Without a version, or with version 0, the existing objects come first, as ADDED. With selectors, an object
that begins to match is ADDED, and one that stops matching is DELETED. A version that is too old ends the
watch with an ERROR of code 410: the client must list again.

Spec: Kubernetes API concepts, "Efficient detection of changes".
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from knative_gateway.api.listing import number, object_document, selector
from knative_gateway.api.negotiation import Form
from knative_gateway.api.objects import Objects, in_version
from knative_gateway.errors import GatewayError, GoneError
from knative_gateway.http.turns import Turns
from knative_gateway.ports import Change, ResourceStore
from knative_gateway.resources.kinds import Kind
from knative_gateway.resources.objects import Object
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


async def events(
    watch: Watch,
    objects: Objects,
    store: ResourceStore,
    closing: asyncio.Event,
    *,
    now_ms: Callable[[], int],
    allowed: Callable[[], bool],
    turns: Turns,
) -> AsyncGenerator[Event, None]:
    """Yield the events of a watch until its timeout, until `closing` is set, or until `allowed` returns
    False.

    `turns`: of all watches. A thousand of them may begin with a thousand objects each, or at a version with
    thousands of changes after it.
    """
    position = watch.after
    try:
        if not position:
            position, present = await objects.list(watch.kind, watch.namespace)
            for index, each in enumerate(present):
                # The token may expire while a slow client reads the list.
                if not index % ALLOWED_OBJECTS and not allowed():
                    return
                if not index % OBJECTS_A_TURN:
                    await turns.turn()
                    # With many other watches, the rest would take longer than the gateway has for its end.
                    if closing.is_set():
                        return
                if _is_meant(watch, each) and watch.matches(each):
                    yield _event("ADDED", watch, each, now_ms())
            if watch.initial_end:
                yield _bookmark(watch, position, INITIAL_END)
        async with aclosing(_changes(watch, store, closing, position, allowed, turns=turns)) as changes:
            async for change in changes:
                if isinstance(change, int):
                    yield _bookmark(watch, change, {})
                    continue
                type_ = _type(watch, change)
                if type_ is not None:
                    yield _event(type_, watch, in_version(watch.kind, change.object), now_ms())
    except GoneError as error:
        yield {"type": "ERROR", "object": gone(str(error)).status()}
    except GatewayError as error:
        yield {"type": "ERROR", "object": StatusError(500, "InternalError", str(error)).status()}


async def _changes(
    watch: Watch,
    store: ResourceStore,
    closing: asyncio.Event,
    after: int,
    allowed: Callable[[], bool],
    *,
    turns: Turns,
) -> AsyncGenerator[Change | int, None]:
    """Yield the changes of this kind, and integers: a version up to which all changes have been yielded."""
    # The store is watched for all kinds. A bookmark then advances even if changes of this kind are rare.
    changes = store.watch("", "", after, in_turns=True)
    loop = asyncio.get_running_loop()
    ends = loop.time() + watch.timeout_s
    marks = loop.time() + BOOKMARK_S
    position, asked, count = after, loop.time(), 0
    stopping = asyncio.create_task(closing.wait())
    coming: asyncio.Future[Change] | None = None
    try:
        while not closing.is_set() and loop.time() < ends:
            if loop.time() >= asked + ALLOWED_S:
                if not allowed():
                    return
                asked = loop.time()
            # The future is kept over several waits: cancelling `anext` would end the generator of the store.
            coming = coming or asyncio.ensure_future(anext(changes))
            waiting: set[asyncio.Future[Any]] = {coming, stopping}
            await asyncio.wait(
                waiting,
                timeout=min(ends - loop.time(), marks - loop.time(), ALLOWED_S),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if coming.done():
                change, coming = coming.result(), None
                await _turn(turns, count)
                count += 1
                position = change.version
                if (change.key.group, change.key.kind) == (watch.kind.group, watch.kind.kind):
                    yield change
            if watch.bookmarks and loop.time() >= marks:
                yield position
            if loop.time() >= marks:
                marks = loop.time() + BOOKMARK_S
        if watch.bookmarks:
            yield position
    except StopAsyncIteration:
        return  # the store is closed
    finally:
        stopping.cancel()
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})
        if isinstance(changes, AsyncGenerator):
            await changes.aclose()


async def _turn(turns: Turns, count: int) -> None:
    """Wait for a turn, if `count` changes have used up the earlier ones."""
    if not count % CHANGES_A_TURN:
        await turns.turn()


def _is_meant(watch: Watch, object_: Object) -> bool:
    metadata = object_["metadata"]
    assert isinstance(metadata, Mapping)
    return (not watch.name or metadata.get("name") == watch.name) and (
        not watch.namespace or metadata.get("namespace") == watch.namespace
    )


def _type(watch: Watch, change: Change) -> str | None:
    if not _is_meant(watch, change.object):
        return None
    # The change is compared before and after, because a selector may begin or stop to match without a
    # deletion.
    now = change.type != "DELETED" and watch.matches(change.object)
    before = change.previous is not None and watch.matches(change.previous)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _event(type_: str, watch: Watch, object_: Object, now_ms: int) -> Event:
    return {
        "type": type_,
        "object": object_document(watch.kind, object_, watch.form, now_ms=now_ms, include=watch.include),
    }


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
