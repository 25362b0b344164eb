"""Every write of a client enters here: the request becomes the object to store, or is refused with a Status.

Create, replace, patch and apply, of an object or of its status. The order of the steps: read the body, prune
unknown fields, fill in defaults, carry over what the server owns (uid, times, status, spec.subscribers),
check the rules, count the generation, record which manager set which field. The store sets resourceVersion.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from knative_gateway.resources.defaults import SUBSCRIBERS, Defaults, filled
from knative_gateway.resources.documents.bounds import OBJECT_VALUES_MAX, Budget, TooMuchError
from knative_gateway.resources.kinds import CORE, Kind
from knative_gateway.resources.objects import (
    Object,
    at,
    child,
    drop,
    name_of,
    number,
    put,
    same,
    text,
    timestamp,
    uid_of,
)
from knative_gateway.resources.patches import applying, json_patches
from knative_gateway.resources.patches.applying import Manager
from knative_gateway.resources.patches.strategic import strategic_patch
from knative_gateway.resources.refusals import (
    StatusError,
    bad_request,
    conflict,
    invalid,
    outdated,
    unsupported_media,
)
from knative_gateway.resources.schema import own_kinds
from knative_gateway.resources.schema.checking import Checked, check
from knative_gateway.resources.validation import check_object

STATUS: Final = "status"
_SUBSCRIBABLE: Final = ("Channel", "InMemoryChannel")
SUFFIX_CHARACTERS: Final = 5
"""The number of characters of the uid that are appended to a generateName."""
METADATA: Final = own_kinds.record(
    {
        **dict.fromkeys(
            ("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"), own_kinds.string()
        ),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), own_kinds.string()),
        **dict.fromkeys(("labels", "annotations"), own_kinds.table(own_kinds.string())),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), own_kinds.INT64),
        "ownerReferences": {**own_kinds.array(own_kinds.ANYTHING), **own_kinds.merged_by("uid")},
        "managedFields": own_kinds.array(own_kinds.ANYTHING),
        "finalizers": {**own_kinds.array(own_kinds.string()), **own_kinds.merged_by()},
    }
)
_OF_SERVER: Final = ("uid", "creationTimestamp", "generation", "resourceVersion")
_ACCEPTED: Final = (json_patches.JSON, json_patches.MERGE, json_patches.APPLY)


class FieldValidation(StrEnum):
    """The treatment of unknown fields: refuse the request, remove them with a warning, or remove them
    silently.
    """

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True)
class Request:
    """A write request without its body.

    `namespace` and `name` come from the path; `name` is empty for a POST.
    """

    kind: Kind
    namespace: str
    name: str
    now_ms: int
    manager: str = "unknown"
    subresource: str = ""
    validation: FieldValidation = FieldValidation.WARN
    defaults: Defaults = field(default_factory=Defaults)
    check_reference: Callable[[str], None] = lambda _namespace: None
    """Raises ForbiddenError if the user must not refer to objects in the given namespace."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The object to store, and warnings for the client."""

    object: dict[str, object]
    warnings: tuple[str, ...] = ()


def create(request: Request, body: object, *, uid: str) -> Admitted:
    """Return a new object. `uid` must be unused.

    Raises:
      StatusError: the request is refused.
    """
    object_, warnings = _read(request, body)
    return Admitted(_noted(request, {}, _new(request, object_, uid)), warnings + _not_taken(object_, {}))


def replace(request: Request, old: Object, body: object) -> Admitted:
    """Return the object after a PUT; if the request names the subresource, only its status changes.

    Raises:
      StatusError: the request is refused. 409 if the body has another resourceVersion or uid.
    """
    object_, warnings = _read(request, body)
    # A PUT replaces the object, but not the fields of the server. Clients send them back as they read them.
    merged = _over(request, old, object_)
    return Admitted(_noted(request, old, merged), warnings + _not_taken(object_, old))


def patch(request: Request, old: Object, media_type: str, body: object) -> Admitted:
    """Return the object after a merge patch, a JSON patch, or (core kinds only) a strategic merge patch.

    Raises:
      StatusError: the request is refused. 415 for other media types.
    """
    if media_type == json_patches.MERGE:
        patched = json_patches.merge_patch(old, body)
    elif media_type == json_patches.JSON:
        patched = json_patches.json_patch(old, body)
    # Kubernetes supports strategic merge only for its own kinds, because custom resources have no merge keys
    # in Go types.
    elif media_type == json_patches.STRATEGIC and request.kind.group == CORE:
        patched = strategic_patch(old, body)
    else:
        raise unsupported_media(
            "the body of the request was in an unknown format - accepted media types include:"
            f" {', '.join(_ACCEPTED)} (not {media_type[:100]}; with kubectl patch: --type=merge)"
        )
    return replace(request, old, patched)


def _not_taken(object_: Object, old: Object) -> tuple[str, ...]:
    """Return warnings about fields that only the server writes."""
    given = at(object_, *SUBSCRIBERS) if text(object_, "kind") in _SUBSCRIBABLE else None
    if given is None or same(given, at(old, *SUBSCRIBERS)):
        return ()
    return (
        "the gateway fills in spec.subscribers: the given value is ignored; create Subscriptions instead",
    )


def apply(request: Request, old: Object | None, body: object, *, uid: str, force: bool = False) -> Admitted:
    """Return the object after a server-side apply. If `old` is None, the object is created with `uid`.

    Raises:
      StatusError: the request is refused. 409 if it would change fields of other managers without `force`.
    """
    object_, warnings = _read(request, body)
    # Kubernetes refuses it as well: an apply states only the fields that the client wants to own.
    if at(object_, *applying.MANAGED) is not None:
        raise bad_request("metadata.managedFields must be nil")
    # First the versions, then the owners: with an old version, the conflicts would be those of another
    # object.
    _check_versions(request, old or {}, object_)
    config = {
        name: value
        for name, value in object_.items()
        if (name == STATUS) is (request.subresource == STATUS) or name in {"apiVersion", "kind"}
    }
    if "metadata" in object_ and request.subresource != STATUS:
        config["metadata"] = object_["metadata"]
    manager = Manager(request.manager, applying.APPLY, request.subresource)
    applied = applying.apply(old or {}, config, manager, _now(request), _schema(request.kind), force=force)
    known = applying.owners(applied)
    if old is None:
        named = put(applied, ("metadata", "name"), request.name)
        if request.kind.namespaced:
            named = put(named, ("metadata", "namespace"), request.namespace)
        return Admitted(applying.with_owners(_new(request, named, uid), known), warnings)
    return Admitted(applying.with_owners(_over(request, old, applied), known), warnings)


def check_preconditions(request: Request, old: Object, options: object) -> None:
    """Check the preconditions of a DELETE request.

    Raises:
      StatusError: the stored object has another uid or resourceVersion (409).
    """
    wanted = child(options, "preconditions")
    for name in ("uid", "resourceVersion"):
        expected, found = text(wanted, name), text(old, "metadata", name)
        if expected and expected != found:
            words = (
                f"the {name} in the precondition ({expected}) does not match the {name} in record ({found})"
            )
            raise conflict(request.kind.group, request.kind.plural, name_of(old), words)


def _noted(request: Request, old: Object, new: dict[str, object]) -> dict[str, object]:
    """Return the new object with the author of the request as the owner of the changed fields."""
    manager = Manager(request.manager, applying.UPDATE, request.subresource)
    return applying.updated(old, new, manager, _now(request), _schema(request.kind))


def _schema(kind: Kind) -> Object:
    return {**kind.schema, "properties": {**child(kind.schema, "properties"), "metadata": METADATA}}


def _now(request: Request) -> str:
    return timestamp(request.now_ms)


def _read(request: Request, body: object) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the object in the body, without unknown fields, and the warnings for the user."""
    kind = request.kind
    if not isinstance(body, Mapping):
        raise bad_request("the body must be an object")
    try:
        # a patch can make the document larger than the body that was checked
        Budget(OBJECT_VALUES_MAX).spend(body)
    except TooMuchError as error:
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {error}") from None
    if (text(body, "apiVersion"), text(body, "kind")) != (kind.api_version, kind.kind):
        given = f"{text(body, 'apiVersion')[:100]}, {text(body, 'kind')[:100]}"
        raise bad_request(
            f"the object ({given}) is not of the kind of the path ({kind.api_version}, {kind.kind})"
        )
    metadata = check(METADATA, body.get("metadata") or {}, "metadata")
    body_checked = check(
        kind.schema,
        {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}},
    )
    causes = metadata.causes + body_checked.causes
    if causes:
        raise invalid(kind.group, kind.kind, request.name or text(body, "metadata", "name"), causes)
    object_ = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": _metadata(request, metadata),
        **child(body_checked.value),
    }
    return object_, _warnings(request, metadata.unknown + body_checked.unknown)


def _metadata(request: Request, checked: Checked) -> dict[str, object]:
    """Return the metadata with namespace and name of the path.

    Finalizers and deletionTimestamp are removed, because deletion is immediate here.
    """
    metadata = {
        name: value
        for name, value in child(checked.value).items()
        if name not in {"selfLink", "finalizers", "deletionTimestamp"}
    }
    for name, of_path in (("namespace", request.namespace), ("name", request.name)):
        given = text(metadata, name)
        if given and of_path and given != of_path:
            raise bad_request(
                f"the {name} of the object ({given[:100]}) does not match the {name} on the URL"
                f" ({of_path[:100]})"
            )
        if of_path:
            metadata[name] = of_path
    if not request.kind.namespaced:
        metadata.pop("namespace", None)
    return metadata


def _warnings(request: Request, unknown: list[str]) -> tuple[str, ...]:
    if not unknown or request.validation is FieldValidation.IGNORE:
        return ()
    words = [f'unknown field "{path}"' for path in unknown]
    if request.validation is FieldValidation.WARN:
        return tuple(words)
    kind = request.kind
    message = (
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error:'
        f" {', '.join(words)}"
    )
    raise StatusError(400, "BadRequest", message)


def _new(request: Request, object_: dict[str, object], uid: str) -> dict[str, object]:
    kind = request.kind
    metadata = {name: value for name, value in child(object_, "metadata").items() if name not in _OF_SERVER}
    if not metadata.get("name") and metadata.get("generateName"):
        # The uid is random already, so its beginning needs no second source of randomness.
        metadata["name"] = f"{metadata['generateName']}{uid.replace('-', '')[:SUFFIX_CHARACTERS]}"
    if text(object_, "metadata", "resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    metadata |= {"uid": uid, "creationTimestamp": _now(request)}
    # Objects of core kinds have no generation in Kubernetes.
    if kind.group != CORE:
        metadata["generation"] = 1
    made = {**object_, "metadata": metadata}
    if kind.status:
        made.pop(STATUS, None)
    # Defaults before the rules: a rule sees the object as it will be stored.
    return _checked(request, filled(kind, made, None, request.defaults), None)


def _over(request: Request, old: Object, new: dict[str, object]) -> dict[str, object]:
    """Return `new` with everything that a client must not change taken from `old`."""
    kind = request.kind
    _check_versions(request, old, new)
    if request.subresource == STATUS:
        return {
            **{name: value for name, value in old.items() if name != STATUS},
            **({STATUS: new[STATUS]} if STATUS in new else {}),
        }
    metadata = {name: value for name, value in child(new, "metadata").items() if name not in _OF_SERVER}
    metadata |= {name: value for name, value in child(old, "metadata").items() if name in _OF_SERVER}
    made: dict[str, object] = {**new, "metadata": metadata}
    if kind.status:
        made.pop(STATUS, None)
        if STATUS in old:
            made[STATUS] = old[STATUS]
    made = _checked(request, filled(kind, made, old, request.defaults), old)
    return counted(kind, old, made)


def counted(kind: Kind, old: Object, new: dict[str, object]) -> dict[str, object]:
    """Return the new object with its generation, incremented if anything except metadata and status
    changed.
    """
    if kind.group == CORE or same(_meant(kind, old), _meant(kind, new)):
        return new
    return put(new, ("metadata", "generation"), number(old, "metadata", "generation") + 1)


def unchanged(old: Object, new: Object) -> bool:
    """Return whether a write would change nothing except times. Such a write is not stored."""
    # The times in managedFields differ at every write, so only the owned fields are compared.
    before, after = (
        {manager: managed.fields for manager, managed in applying.owners(each).items()} for each in (old, new)
    )
    return before == after and same(drop(old, applying.MANAGED), drop(new, applying.MANAGED))


def _meant(kind: Kind, object_: Object) -> Object:
    return {
        name: value
        for name, value in object_.items()
        if name not in {"metadata", "apiVersion"} and not (kind.status and name == STATUS)
    }


def _checked(request: Request, object_: dict[str, object], old: Object | None) -> dict[str, object]:
    causes = check_object(request.kind, object_, old)
    if causes:
        raise invalid(request.kind.group, request.kind.kind, name_of(object_), causes)
    return object_


def _check_versions(request: Request, old: Object, new: Object) -> None:
    """Refuse a body with a resourceVersion or a uid that is not the stored one."""
    kind, name = request.kind, request.name
    version, uid = text(new, "metadata", "resourceVersion"), uid_of(new)
    if old and version and version != text(old, "metadata", "resourceVersion"):
        raise outdated(kind.group, kind.plural, name)
    if old and uid and uid != uid_of(old):
        raise conflict(
            kind.group,
            kind.plural,
            name,
            f"the UID in the precondition ({uid}) does not match the UID in record ({uid_of(old)})",
        )
