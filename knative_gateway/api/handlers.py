"""The verbs on collections and objects: a request becomes an answer. [io]"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from knative_gateway.api import reading
from knative_gateway.api.actions import CHANGES, DELIVERIES, POSTED, Actions, applies
from knative_gateway.api.auditing import Audit, place_of
from knative_gateway.api.listing import list_text, object_document, objects_text, page, selector
from knative_gateway.api.negotiation import form
from knative_gateway.api.objects import Namespaces, Objects, Written
from knative_gateway.api.stepping import caller_key, filtered, json_text
from knative_gateway.api.targets import STATUS, Target
from knative_gateway.api.watching import Client, Watches, watch_of
from knative_gateway.http.asgi import CUT
from knative_gateway.ports import ResourceStore
from knative_gateway.resources import admission
from knative_gateway.resources.defaults import Defaults
from knative_gateway.resources.kinds import Kind
from knative_gateway.resources.objects import Object, name_of, namespace_of, text, uid_of
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.refusals import Because, Cause, StatusError, invalid
from knative_gateway.security.access import Access
from service_parts.shares import Shares

BODY_BYTES_MAX: Final = 3 << 20
WARNING_CHARACTERS_MAX: Final = 256
WARNINGS_CHARACTERS_MAX: Final = 4096
"""Characters of all warnings in one answer, as in Kubernetes. An object may have 20,000 unknown fields."""
WATCHES_MAX: Final = 1_000
"""Open watches. Each change is compared with each of them, so their number limits the cost of a write."""
WATCHES_RETRY_S: Final = 5
REQUESTS_MAX: Final = 64
"""Requests that read one object, and requests with a body that has arrived, at a time each. Others wait."""
LISTS_MAX: Final = 8
"""Lists that are read and written at a time: each may take hundreds of megabytes."""
HOLDS: Final = "knative_gateway.holds"
"""Key in the scope of a request; the value is an `AsyncExitStack` that ends when the answer is sent."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Settings of the API. `body_bytes_max` limits the body of one request."""

    namespaces: Namespaces = Namespaces.ON_DEMAND
    defaults: Defaults = field(default_factory=Defaults)
    body_bytes_max: int = BODY_BYTES_MAX


class Handlers:
    """The handlers for all kinds. Setting `closing` ends the watches."""

    def __init__(
        self,
        objects: Objects,
        store: ResourceStore,
        actions: Actions,
        settings: ApiSettings,
        audit: Audit,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._objects: Final = objects
        self._actions: Final = actions
        self._audit: Final = audit
        self._settings: Final = settings
        self._now_ms: Final = now_ms
        self.closing: Final = asyncio.Event()
        self._watches: Final = Watches(objects, store, self.closing, now_ms=now_ms)
        self._watches_open = 0
        # A GET does not wait for writes of large objects, which may take half a second each.
        self._gets: Final = Shares(REQUESTS_MAX)
        self._writes: Final = Shares(REQUESTS_MAX)
        self._lists: Final = Shares(LISTS_MAX)

    async def answer(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        """Answer a request for a kind that is served.

        Raises:
          StatusError: the request is refused.
        """
        if kind.namespaced and target.name and not target.namespace:
            raise nowhere()
        if not kind.namespaced and target.namespace:
            raise nowhere()
        if not target.name:
            return await self._collection(request, target, kind, access)
        if not target.subresource or (target.subresource == STATUS and kind.status):
            return await self._object(request, target, kind, access)
        if applies(kind, target.subresource):
            return await self._action(request, target, kind, access)
        raise nowhere()

    async def _collection(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        match request.method:
            case "GET" if request.query_params.get("watch", "").lower() in {"1", "true"}:
                return self._watch(request, target, kind, access)
            case "GET":
                return await self._list(request, target, kind)
            case "POST" if target.namespace or not kind.namespaced:
                body = await self._body(request)
                made = await self._objects.create(
                    self._admission_request(request, target, kind, access),
                    body,
                    dry_run=reading.dry_run(request),
                )
                self._note(access, "create", kind, made)
                return await self._written(request, kind, made)
            case "DELETE" if target.namespace or not kind.namespaced:
                return await self._delete_collection(request, target, kind, access)
            case _:
                raise not_allowed()

    async def _object(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        match request.method:
            case "GET" if (
                request.query_params.get("watch", "").lower() in {"1", "true"} and not target.subresource
            ):
                return self._watch(request, target, kind, access)
            case "GET":
                return await self._get(request, target, kind)
            case "PUT":
                return await self._replace(request, target, kind, access)
            case "PATCH":
                return await self._patch(request, target, kind, access)
            case "DELETE" if not target.subresource:
                options = await self._body(request)
                meant = self._admission_request(request, target, kind, access)
                dry_run = reading.dry_run(request, options)
                gone = await self._objects.delete(meant, options, dry_run=dry_run)
                if not dry_run:
                    self._audit.note_all(access.user, kind, [gone])
                return await answer(_deleted(kind, gone))
            case _:
                raise not_allowed()

    async def _list(self, request: Request, target: Target, kind: Kind) -> Response:
        wanted = form(request.headers.get("accept", ""))
        await self._place(request, self._lists)
        part = await page(self._objects, kind, target.namespace, request.query_params)
        return answered(await list_text(kind, part, wanted, now_ms=self._now_ms(), include=_include(request)))

    async def _get(self, request: Request, target: Target, kind: Kind) -> Response:
        wanted = form(request.headers.get("accept", ""))
        await self._place(request, self._gets)
        found = await self._objects.get(kind, target.namespace, target.name)
        return await answer(
            object_document(kind, found, wanted, now_ms=self._now_ms(), include=_include(request))
        )

    async def _place(self, request: Request, places: Shares) -> None:
        """Wait for a place. The request holds it until its answer is sent: a thousand requests that wait for
        their turns would hold a thousand objects.
        """
        await request.scope[HOLDS].enter_async_context(places.place(caller_key()))

    def _watch(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        wanted = form(request.headers.get("accept", ""))
        watch = watch_of(kind, target.namespace, target.name, request.query_params, wanted)
        # Refused before the answer begins, because a status cannot be sent in the middle of a stream.
        if self._watches_open >= WATCHES_MAX:
            words = f"the limit of {WATCHES_MAX} watches is reached, please try again later"
            raise StatusError(429, "TooManyRequests", words, details={"retryAfterSeconds": WATCHES_RETRY_S})
        cut = request.scope.get("state", {}).get(CUT, _goes_on)
        stream = self._watches.lines(watch, Client(caller_key(), access.may_read, cut))

        async def lines() -> AsyncIterator[bytes]:
            # Counted when the stream begins and not when it is asked for: a client that leaves in between
            # would never be subtracted.
            self._watches_open += 1
            try:
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                self._watches_open -= 1

        return StreamingResponse(
            lines(), media_type="application/json", headers={"cache-control": "no-cache, private"}
        )

    async def _replace(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        body = await self._body(request)
        meant = self._admission_request(request, target, kind, access)
        once = bool(text(body, "metadata", "resourceVersion"))
        written = await self._objects.change(
            meant,
            lambda old: admission.replace(meant, old, body),
            body,
            dry_run=reading.dry_run(request),
            once=once,
        )
        self._note(access, "update", kind, written)
        return await self._written(request, kind, written)

    async def _patch(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        type_ = reading.media_type(request)
        meant = self._admission_request(request, target, kind, access)
        dry_run = reading.dry_run(request)
        body = await self._body(request)
        if type_ == json_patches.APPLY:
            if not request.query_params.get("fieldManager"):
                raise invalid(
                    "meta.k8s.io",
                    "PatchOptions",
                    "",
                    [Cause(Because.REQUIRED, "fieldManager", "is required for apply patch")],
                )
            force = request.query_params.get("force", "").lower() in {"1", "true"}
            applied = await self._objects.apply(meant, body, force=force, dry_run=dry_run)
            self._note(access, "apply", kind, applied)
            return await self._written(request, kind, applied)
        once = bool(text(body, "metadata", "resourceVersion"))
        written = await self._objects.change(
            meant,
            lambda old: admission.patch(meant, old, type_, body),
            body,
            dry_run=dry_run,
            once=once,
            grows=type_ == json_patches.JSON,
        )
        self._note(access, "patch", kind, written)
        return await self._written(request, kind, written)

    async def _delete_collection(
        self, request: Request, target: Target, kind: Kind, access: Access
    ) -> Response:
        options = await self._body(request)
        matches = selector(kind, request.query_params)
        version, found = await self._objects.list(kind, target.namespace)
        # The list is taken once. Objects that are created while the collection is deleted stay, as in
        # Kubernetes.
        chosen = await filtered(found, matches)
        gone: list[Object] = []
        if kind.namespaced and not reading.dry_run(
            request, options
        ):  # namespaced objects do not own others, so many can be removed in one transaction
            gone += await self._objects.remove(kind, chosen)
            removed = {(namespace_of(each), name_of(each)) for each in gone}
            chosen = [each for each in chosen if (namespace_of(each), name_of(each)) not in removed]
        for each in chosen:
            one = Target(target.group, target.version, target.plural, namespace_of(each), name_of(each))
            try:
                deleted = await self._objects.delete(
                    self._admission_request(request, one, kind, access),
                    {},
                    dry_run=reading.dry_run(request, options),
                )
            except StatusError as error:
                if error.code not in {403, 404}:  # another client deleted it, or it must not be deleted
                    raise
                continue
            gone.append(deleted)
        if not reading.dry_run(request, options):
            self._audit.note_all(access.user, kind, gone)
        return answered(await objects_text(kind, {"resourceVersion": str(version)}, gone))

    async def _action(self, request: Request, target: Target, kind: Kind, access: Access) -> Response:
        if request.method == "GET" and target.subresource == DELIVERIES:
            return await answer(await self._actions.deliveries(kind, target.namespace, target.name))
        if request.method == "POST" and target.subresource in POSTED:
            options = await self._body(request)
            meant = self._admission_request(request, target, kind, access, plain=True)
            done = await self._actions.act(meant, target.subresource, options)
            if target.subresource in CHANGES:
                self._audit.note(access.user, target.subresource, kind, (target.namespace, target.name))
            return await answer(done)
        raise not_allowed()

    async def _body(self, request: Request) -> object:
        body = await reading.body(request, self._settings.body_bytes_max)
        await self._place(request, self._writes)
        return body

    def _admission_request(
        self, request: Request, target: Target, kind: Kind, access: Access, *, plain: bool = False
    ) -> admission.Request:
        return admission.Request(
            kind,
            target.namespace,
            target.name,
            self._now_ms(),
            manager=reading.manager(request),
            subresource="" if plain else target.subresource,
            validation=reading.validation(request),
            defaults=self._settings.defaults,
            check_reference=access.check_reference,
        )

    def _note(self, access: Access, what: str, kind: Kind, written: Written) -> None:
        if written.stored:
            self._audit.note(access.user, what, kind, place_of(written.object))

    async def _written(self, request: Request, kind: Kind, written: Written) -> Response:
        wanted = form(request.headers.get("accept", ""))
        document = object_document(
            kind, written.object, wanted, now_ms=self._now_ms(), include=_include(request)
        )
        response = await answer(document, 201 if written.made else 200)
        left = WARNINGS_CHARACTERS_MAX
        for words in written.warnings:
            left -= min(len(words), WARNING_CHARACTERS_MAX)
            if left < 0:
                break
            # A warning may quote what the client sent. A control character in it would break the header (RFC
            # 9110, 5.5).
            shown = "".join(
                character if " " <= character <= "~" else "?" for character in words[:WARNING_CHARACTERS_MAX]
            )
            escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.append("warning", f'299 - "{escaped}"')
        return response


def _goes_on() -> None:
    """The connection of a request that came without a listener stays."""


async def answer(document: object, code: int = 200) -> Response:
    """Return a JSON answer."""
    return answered(await json_text(document), code=code)


def answered(text: bytes, media_type: str = "application/json", *, code: int = 200) -> Response:
    """Return an answer that is written already."""
    return Response(text, code, media_type=media_type, headers={"cache-control": "no-cache, private"})


def nowhere() -> StatusError:
    """The path does not exist (404)."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> StatusError:
    """The path does not support this method (405)."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def _include(request: Request) -> str:
    return request.query_params.get("includeObject", "Metadata")


def _deleted(kind: Kind, gone: Object) -> dict[str, object]:
    details = {
        "name": name_of(gone),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.plural,
        "uid": uid_of(gone),
    }
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
