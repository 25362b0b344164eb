"""Reading and writing objects: admission, then the store, with a retry after a concurrent write. [io]

`resources.admission` judges what a client sends. This module does what needs the store: namespaces,
definitions, and the objects that are deleted with them.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from knative_gateway.api.definitions import DEFINITION, Definitions
from knative_gateway.api.stepping import beside, in_thread
from knative_gateway.errors import ConflictError
from knative_gateway.ports import Key, ResourceStore
from knative_gateway.resources import admission
from knative_gateway.resources.admission import Admitted, Request
from knative_gateway.resources.documents.bounds import OBJECT_BYTES_MAX
from knative_gateway.resources.documents.large import json_pieces
from knative_gateway.resources.kinds import BUILT_IN, CORE, EXTENSIONS, Kind, established
from knative_gateway.resources.objects import Object, child, entries, name_of, namespace_of, text, timestamp
from knative_gateway.resources.references import foreign
from knative_gateway.resources.refusals import StatusError, already_exists, not_found, outdated

ATTEMPTS: Final = 10
"""Attempts of a write without a resourceVersion while other clients write the same object."""
REMOVED_AT_ONCE: Final = 100
"""Objects removed in one transaction. Other writers proceed between two transactions."""
DEFAULT_NAMESPACE: Final = "default"
_NAMESPACE: Final = next(kind for kind in BUILT_IN.kinds if kind.kind == "Namespace")


Removed = Callable[[Sequence[Object]], None]


class Namespaces(StrEnum):
    """What happens to an object in a namespace that does not exist."""

    ON_DEMAND = "on-demand"
    """The namespace is created."""
    REQUIRED = "required"
    """The object is refused, as in Kubernetes (404)."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write. `made`: the object was created. `stored`: the write changed something."""

    object: Object
    warnings: tuple[str, ...] = ()
    made: bool = False
    stored: bool = False


class Objects:
    """Reads and writes objects of all kinds."""

    def __init__(
        self,
        store: ResourceStore,
        definitions: Definitions,
        namespaces: Namespaces,
        *,
        removed: Removed = lambda _objects: None,
    ) -> None:
        """`removed`: called with deleted objects, before the client gets its answer."""
        self._removed: Final = removed
        self._store: Final = store
        self._definitions: Final = definitions
        self._namespaces: Final = namespaces

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object in the version of `kind`.

        Raises:
          StatusError: the object does not exist (404).
        """
        found = await self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind.group, kind.plural, name)
        return found

    async def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object in the version of `kind`, or None."""
        built_in = self._built_in(kind).get(name)
        stored = built_in or await self._store.get(Key(kind.group, kind.kind, namespace, name))
        return None if stored is None else in_version(kind, stored)

    async def list(self, kind: Kind, namespace: str = "") -> tuple[int, Sequence[Object]]:
        """Return the version of the list, and all objects of a kind. An empty `namespace` means all
        namespaces.
        """
        version, stored = await self._store.list(kind.group, kind.kind, namespace or None)
        if built_in := self._built_in(kind).values():
            stored = sorted((*built_in, *stored), key=name_of)
        return version, [in_version(kind, each) for each in stored]

    async def part(
        self, kind: Kind, namespace: str, after: tuple[str, str] | None, limit: int
    ) -> tuple[int, Sequence[Object], int]:
        """Return the version of a list, its first `limit` objects after a namespace and name, and how many
        follow them. An empty `namespace` means all namespaces.
        """
        if self._built_in(kind):
            version, found = await self.list(kind, namespace)
            found = [each for each in found if after is None or (namespace_of(each), name_of(each)) > after]
            return version, found[:limit], max(0, len(found) - limit)
        version, stored, remaining = await self._store.part(
            kind.group, kind.kind, namespace or None, after=after, limit=limit
        )
        return version, [in_version(kind, each) for each in stored], remaining

    async def create(self, request: Request, body: object, *, dry_run: bool = False) -> Written:
        """Create an object.

        Raises:
          StatusError: the request is refused, or an object with this name exists.
        """
        uid = str(uuid.uuid4())
        admitted = await beside(lambda: admission.create(request, body, uid=uid), body)
        name = name_of(admitted.object)
        # Before the namespace is created: a request that is refused leaves nothing behind.
        _check_references(request, admitted.object, None)
        self._check_not_built_in(request.kind, name, create=True)
        await self._need_namespace(request, dry_run=dry_run)
        if dry_run:
            if await self.find(request.kind, request.namespace, name) is not None:
                raise already_exists(request.kind.group, request.kind.plural, name)
            return Written(admitted.object, admitted.warnings, made=True)
        try:
            stored = await self._put(request, admitted.object, name, 0)
        except ConflictError:
            raise already_exists(request.kind.group, request.kind.plural, name) from None
        return Written(stored, admitted.warnings, made=True, stored=True)

    async def change(
        self,
        request: Request,
        change: Callable[[Object], Admitted],
        body: object,
        *,
        dry_run: bool = False,
        once: bool = False,
        grows: bool = False,
    ) -> Written:
        """Replace the stored object with the result of `change`, which is made from `body`.

        `grows`: the result may be large although object and body are small.
        `change` is called again after a concurrent write, except with `once`: the body has a resourceVersion,
        so the client means exactly this version.

        Raises:
          StatusError: the object does not exist, the change is refused, or all attempts met a concurrent
          write.
        """

        def changed(old: Object | None) -> Admitted:
            if old is None:
                raise not_found(request.kind.group, request.kind.plural, request.name)
            return change(old)

        return await self._write(request, changed, body, dry_run=dry_run, once=once, grows=grows)

    async def apply(self, request: Request, body: object, *, force: bool, dry_run: bool = False) -> Written:
        """Server-side apply. Creates the object if it does not exist.

        Raises:
          StatusError: the request is refused.
        """
        uid = str(uuid.uuid4())
        if request.subresource:
            return await self.change(
                request,
                lambda old: admission.apply(request, old, body, uid=uid, force=force),
                body,
                dry_run=dry_run,
            )
        await self._need_namespace(request, dry_run=dry_run)
        return await self._write(
            request,
            lambda old: admission.apply(request, old, body, uid=uid, force=force),
            body,
            dry_run=dry_run,
        )

    async def delete(self, request: Request, options: object, *, dry_run: bool = False) -> Object:
        """Delete an object, and the objects in a namespace or of a definition with it. Return the deleted
        object.

        Raises:
          StatusError: the object does not exist, or the preconditions in `options` do not hold.
        """
        kind = request.kind
        if kind.group == CORE and kind.kind == "Namespace" and request.name == DEFAULT_NAMESPACE:
            raise _forbidden(kind, request.name, "this namespace may not be deleted")
        for _ in range(ATTEMPTS):
            # Read again in each attempt, because the preconditions must hold for the version that is deleted.
            old = await self.get(kind, request.namespace, request.name)
            self._check_not_built_in(kind, request.name)
            admission.check_preconditions(request, old, options)
            if dry_run:
                return old
            await self._delete_with(kind, old)
            try:
                gone = await self._store.write(_key(request), None, expected_version=version_of(old))
            except ConflictError:
                continue
            assert gone is not None, "deleted at a version that it had"
            self._removed((gone,))
            # Delete a second time: objects may have been created in the meantime. The first time is needed
            # too: after a crash at this point, a namespace that is gone would still have objects.
            await self._delete_with(kind, old)
            return in_version(kind, gone)
        raise outdated(kind.group, kind.plural, request.name)

    async def remove(self, kind: Kind, objects: Sequence[Object]) -> Sequence[Object]:
        """Delete the objects that are unchanged since they were read, and return these.

        Only for kinds whose objects do not own others.
        """
        gone: list[Object] = []
        for start in range(0, len(objects), REMOVED_AT_ONCE):
            part = objects[start : start + REMOVED_AT_ONCE]
            keys = {
                Key(kind.group, kind.kind, namespace_of(each), name_of(each)): version_of(each)
                for each in part
            }
            removed = await self._store.remove(dict(keys))
            self._removed(removed)
            gone += [in_version(kind, each) for each in removed]
        return gone

    async def _write(
        self,
        request: Request,
        change: Callable[[Object | None], Admitted],
        body: object,
        *,
        dry_run: bool,
        once: bool = False,
        grows: bool = False,
    ) -> Written:
        kind = request.kind

        def changed(old: Object | None) -> tuple[Admitted, bool]:
            admitted = change(old)
            return admitted, old is not None and admission.unchanged(old, admitted.object)

        for _ in range(1 if once else ATTEMPTS):
            old = await self.find(kind, request.namespace, request.name)
            work = partial(changed, old)
            admitted, is_same = await (in_thread(work) if grows else beside(work, old, body))
            _check_references(request, admitted.object, old)
            self._check_not_built_in(kind, request.name)
            # A new version would wake all watches and the controller, for example at each repetition of
            # `kubectl apply`.
            if old is not None and is_same:
                return Written(old, admitted.warnings)
            if dry_run:
                return Written(admitted.object, admitted.warnings, made=old is None)
            try:
                stored = await self._put(
                    request, admitted.object, request.name, 0 if old is None else version_of(old)
                )
            except ConflictError:
                continue
            return Written(stored, admitted.warnings, made=old is None, stored=True)
        raise outdated(kind.group, kind.plural, request.name)

    async def _put(self, request: Request, object_: Object, name: str, expected: int) -> Object:
        kind = request.kind
        is_definition = kind.group == EXTENSIONS and kind.kind == DEFINITION
        if is_definition:
            object_ = _served(object_, timestamp(request.now_ms))
        # Checked here and not only for the body: patches and defaults can make an object larger than each
        # request.
        size = await beside(lambda: sum(map(len, json_pieces(object_))), object_)
        if size > OBJECT_BYTES_MAX:
            words = (
                f"Request entity too large: the object would have {size} bytes, the limit is"
                f" {OBJECT_BYTES_MAX}"
            )
            raise StatusError(413, "RequestEntityTooLarge", words)
        stored = await self._store.write(
            _key(replace(request, name=name)), object_, expected_version=expected
        )
        if is_definition:
            await self._definitions.refresh()
        assert stored is not None
        return in_version(kind, stored)

    async def _need_namespace(self, request: Request, *, dry_run: bool) -> None:
        name = request.namespace
        if not request.kind.namespaced or await self._store.get(Key(CORE, "Namespace", "", name)) is not None:
            return
        if self._namespaces is Namespaces.REQUIRED:
            raise not_found(CORE, "namespaces", name)
        if not dry_run:
            await self.make_namespace(name, request.now_ms)

    async def make_namespace(self, name: str, now_ms: int) -> None:
        """Create a namespace unless it exists.

        Raises:
          StatusError: the name is not a valid name of a namespace.
        """
        request = Request(_NAMESPACE, "", name, now_ms, manager="knative-gateway")
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        admitted = admission.create(request, body, uid=str(uuid.uuid4()))
        try:
            await self._put(request, admitted.object, name, 0)
        except ConflictError:
            return

    async def _delete_with(self, kind: Kind, object_: Object) -> None:
        """Delete the objects in a namespace or of a definition."""
        if kind.group == CORE and kind.kind == "Namespace":
            # Each kind once: the versions of a kind are views of the same objects.
            for each in self._definitions.registry.stored():
                if each.namespaced:
                    await self._delete_all(each.group, each.kind, name_of(object_))
        elif kind.group == EXTENSIONS and kind.kind == DEFINITION:
            await self._definitions.refresh()
            await self._delete_all(
                text(object_, "spec", "group"), text(object_, "spec", "names", "kind"), None
            )

    async def _delete_all(self, group: str, kind: str, namespace: str | None) -> None:
        _, found = await self._store.list(group, kind, namespace)
        keys = [Key(group, kind, text(each, "metadata", "namespace"), name_of(each)) for each in found]
        for start in range(0, len(keys), REMOVED_AT_ONCE):
            self._removed(await self._store.remove(dict.fromkeys(keys[start : start + REMOVED_AT_ONCE])))

    def _built_in(self, kind: Kind) -> Mapping[str, Object]:
        return self._definitions.built_in if kind.group == EXTENSIONS and kind.kind == DEFINITION else {}

    def _check_not_built_in(self, kind: Kind, name: str, *, create: bool = False) -> None:
        if name in self._built_in(kind):
            if create:
                raise already_exists(kind.group, kind.plural, name)
            raise _forbidden(kind, name, "built-in definitions cannot be changed")


def _check_references(request: Request, object_: Object, old: Object | None) -> None:
    for namespace in sorted(foreign(object_, old)):
        request.check_reference(namespace)


def in_version(kind: Kind, stored: Object) -> Object:
    """Return a stored object in the requested version of its kind."""
    return (
        stored if stored.get("apiVersion") == kind.api_version else {**stored, "apiVersion": kind.api_version}
    )


def version_of(object_: Object) -> int:
    """Return `metadata.resourceVersion` of a stored object as a number."""
    return int(text(object_, "metadata", "resourceVersion"))


def _key(request: Request) -> Key:
    return Key(request.kind.group, request.kind.kind, request.namespace, request.name)


def _served(definition: Object, now: str) -> Object:
    """Return a definition with its status. A definition is served as soon as it is stored."""
    spec = child(definition, "spec")
    since = next(
        (text(each, "lastTransitionTime") for each in entries(definition, "status", "conditions")), now
    )
    versions = [
        text(each, "name") for each in entries(spec, "versions") if child(each).get("storage") is True
    ]
    return {**definition, "status": established(child(spec, "names"), versions, since)}


def _forbidden(kind: Kind, name: str, words: str) -> StatusError:
    return StatusError(403, "Forbidden", f'{kind.full_name} "{name}" is forbidden: {words}')
