"""Lists in pages, by selectors, in the form that was asked for. Pure.

Spec: Kubernetes API concepts, "Retrieving large results sets in chunks".
A page goes on behind the last name of the one before. All pages tell the version of the first: who watches
after it sees whatever changed while the pages were read.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.api.negotiation import Form
from knative_gateway.resources.kinds import Kind
from knative_gateway.resources.objects import Object, name_of, namespace_of
from knative_gateway.resources.printing import partial, table
from knative_gateway.resources.refusals import bad_request
from knative_gateway.resources.selectors import Selector, everything, field_selector, label_selector

TOKEN_CHARACTERS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. `token` continues it; None: this was the end."""

    version: int
    objects: Sequence[Object]
    token: str | None = None
    remaining: int = 0


def selector(kind: Kind, query: Mapping[str, str]) -> Selector:
    """Both selectors of a request for objects of a kind.

    Raises:
        StatusError: one cannot be read (400).
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


def page(kind: Kind, version: int, objects: Sequence[Object], query: Mapping[str, str]) -> Page:
    """What a request gets of a sorted list.

    Raises:
        StatusError: its selectors, limit or token cannot be read (400).
    """
    matches = selector(kind, query)
    after: tuple[str, str] | None = None
    if query.get("continue"):
        version, after = _read(query["continue"])
    found = [each for each in objects if (after is None or _place(each) > after) and matches(each)]
    limit = number(query, "limit")
    if not limit or len(found) <= limit:
        return Page(version, found)
    return Page(version, found[:limit], _written(version, _place(found[limit - 1])), len(found) - limit)


def number(query: Mapping[str, str], name: str) -> int:
    """A parameter that is a count; 0 if it is not there.

    Raises:
        StatusError: it is none (400).
    """
    written = query.get(name, "")
    if not written:
        return 0
    if not written.isdecimal() or not written.isascii() or len(written) > 18:
        raise bad_request(f"{name}: {written[:40]!r} is not a number")
    return int(written)


def list_document(
    kind: Kind, part: Page, form: Form, *, now_ms: int, include: str = "Metadata"
) -> dict[str, object]:
    """The list as it is sent."""
    more: dict[str, object] = (
        {"continue": part.token, "remainingItemCount": part.remaining} if part.token else {}
    )
    version = str(part.version)
    if form is Form.TABLE:
        return table(kind, part.objects, now_ms=now_ms, version=version, include=include, more=more)
    metadata = {"resourceVersion": version, **more}
    if form is Form.METADATA:
        items = [partial(each) for each in part.objects]
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items,
        }
    return {
        "kind": kind.list_kind,
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": list(part.objects),
    }


def object_document(
    kind: Kind, object_: Object, form: Form, *, now_ms: int, include: str = "Metadata"
) -> Object:
    """One object as it is sent."""
    if form is Form.TABLE:
        version = str(object_.get("metadata", {}).get("resourceVersion", ""))  # type: ignore[attr-defined]  # every object has metadata
        return table(kind, [object_], now_ms=now_ms, version=version, include=include)
    return partial(object_) if form is Form.METADATA else object_


def _place(object_: Object) -> tuple[str, str]:
    return namespace_of(object_), name_of(object_)


def _written(version: int, place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *place]).encode()).decode()


def _read(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token[:TOKEN_CHARACTERS_MAX]))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise bad_request("continue key is not valid") from None
    if not (isinstance(version, int) and isinstance(namespace, str) and isinstance(name, str)):
        raise bad_request("continue key is not valid")
    return version, (namespace, name)
