"""Lists in pages, with selectors, in the form that the client asked for, in steps. [io]

A page continues after the last name of the previous page. All pages have the version of the first one, so a
client that watches from this version sees every change that was made while it read the pages.

Spec: Kubernetes API concepts, "Retrieving large results sets in chunks".
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from knative_gateway.api.negotiation import Form
from knative_gateway.api.stepping import filtered, for_each
from knative_gateway.resources.documents.large import json_pieces
from knative_gateway.resources.kinds import Kind
from knative_gateway.resources.objects import Object, name_of, namespace_of
from knative_gateway.resources.printing import partial, row, table
from knative_gateway.resources.refusals import bad_request
from knative_gateway.resources.selectors import Selector, everything, field_selector, label_selector

TOKEN_CHARACTERS_MAX: Final = 4096
LIMIT_MAX: Final = 1 << 31
"""A larger limit is this one: databases count to 2^63 - 1 only."""


class Lists(Protocol):
    """Where the objects come from."""

    async def list(self, kind: Kind, namespace: str = "") -> tuple[int, Sequence[Object]]:
        """See `knative_gateway.api.objects.Objects.list`."""

    async def part(
        self, kind: Kind, namespace: str, after: tuple[str, str] | None, limit: int
    ) -> tuple[int, Sequence[Object], int]:
        """See `knative_gateway.api.objects.Objects.part`."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. `token` continues the list; None marks the last page."""

    version: int
    objects: Sequence[Object]
    token: str | None = None
    remaining: int = 0


def selector(kind: Kind, query: Mapping[str, str]) -> Selector:
    """Return the label selector and the field selector of a request as one.

    Raises:
      StatusError: a selector is not valid (400).
    """
    chosen = [
        made
        for made in (
            label_selector(query.get("labelSelector", "")),
            field_selector(query.get("fieldSelector", ""), kind.schema),
        )
        if made is not everything
    ]
    return (lambda object_: all(matches(object_) for matches in chosen)) if chosen else everything


async def page(lists: Lists, kind: Kind, namespace: str, query: Mapping[str, str]) -> Page:
    """Return the requested page of a list. An empty `namespace` means all namespaces.

    Raises:
      StatusError: a selector, the limit or the token is not valid (400).
    """
    matches = selector(kind, query)
    # The token names the last object and not an index: objects that are created or deleted between two pages
    # move no other object.
    begun, after = _read(query["continue"]) if query.get("continue") else (None, None)
    limit = number(query, "limit")
    if limit and matches is everything:
        version, found, remaining = await lists.part(kind, namespace, after, min(limit, LIMIT_MAX))
    else:
        version, every = await lists.list(kind, namespace)
        rest = every if after is None else [each for each in every if _identity(each) > after]
        found = await filtered(rest, matches)
        limit = limit or len(found)
        found, remaining = found[:limit], max(0, len(found) - limit)
    token = _written(begun or version, _identity(found[-1])) if remaining else None
    return Page(version if begun is None else begun, found, token, remaining)


def number(query: Mapping[str, str], name: str) -> int:
    """Return a query parameter that is a count; 0 if it is missing.

    Raises:
      StatusError: the value is not a number (400).
    """
    written = query.get(name, "")
    if not written:
        return 0
    # 18 digits: a larger number does not fit 64 bits, and int() of a very long text is slow.
    if not written.isdecimal() or not written.isascii() or len(written) > 18:
        raise bad_request(f"{name}: {written[:40]!r} is not a number")
    return int(written)


async def list_text(kind: Kind, part: Page, form: Form, *, now_ms: int, include: str = "Metadata") -> bytes:
    """Return the JSON text of the list in the requested form."""
    more: dict[str, object] = (
        {"continue": part.token, "remainingItemCount": part.remaining} if part.token else {}
    )
    version = str(part.version)
    if form is Form.TABLE:
        head = table(kind, (), now_ms=now_ms, version=version, include=include, more=more)
        return await _text(
            head, "rows", part.objects, lambda each: row(kind, each, now_ms=now_ms, include=include)
        )
    metadata = {"resourceVersion": version, **more}
    if form is Form.METADATA:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return await _text(head, "items", part.objects, partial)
    return await objects_text(kind, metadata, part.objects)


async def objects_text(kind: Kind, metadata: Mapping[str, object], objects: Sequence[Object]) -> bytes:
    """Return the JSON text of a list of whole objects."""
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
    return await _text(head, "items", objects, lambda each: each)


async def _text(
    head: Mapping[str, object], name: str, objects: Sequence[Object], shown: Callable[[Object], object]
) -> bytes:
    """The JSON text of `head` with what is shown of the objects as `name`."""
    rest = {key: value for key, value in head.items() if key != name}

    def pieces() -> Iterator[str]:
        yield f"{''.join(json_pieces(rest))[:-1]},{json.dumps(name)}:["
        for index, each in enumerate(objects):
            written = json_pieces(shown(each))
            yield f",{next(written)}" if index else next(written)
            yield from written
        yield "]}"

    return b"".join(await for_each(pieces(), str.encode))


def object_document(
    kind: Kind, object_: Object, form: Form, *, now_ms: int, include: str = "Metadata"
) -> Object:
    """Return one object in the requested form."""
    if form is Form.TABLE:
        # Every object has metadata.
        version = str(object_.get("metadata", {}).get("resourceVersion", ""))  # type: ignore[attr-defined]
        return table(kind, [object_], now_ms=now_ms, version=version, include=include)
    return partial(object_) if form is Form.METADATA else object_


def _identity(object_: Object) -> tuple[str, str]:
    return namespace_of(object_), name_of(object_)


def _written(version: int, last: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *last]).encode()).decode()


def _read(token: str) -> tuple[int, tuple[str, str]]:
    try:
        # The token comes from the client. It is checked like any input, and it can only name a position in a
        # list that the client may read.
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token[:TOKEN_CHARACTERS_MAX]))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise bad_request("continue key is not valid") from None
    if not (isinstance(version, int) and isinstance(namespace, str) and isinstance(name, str)) or not (
        # Every name is. A database refuses half of a surrogate pair, or NUL.
        (namespace + name).isascii() and (namespace + name).isprintable()
    ):
        raise bad_request("continue key is not valid")
    return version, (namespace, name)
