"""The API's schemas and operations as OpenAPI 3, of one group and version or of all. Pure.

kubectl uses these documents for `explain`, and to find out that the server can refuse unknown fields
(`fieldValidation`).

Spec: Kubernetes API concepts, "OpenAPI V3".
"""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from knative_gateway import __version__
from knative_gateway.api import actions
from knative_gateway.api.describing.ingress_paths import INGRESS
from knative_gateway.resources.admission import METADATA
from knative_gateway.resources.kinds import CORE, Kind, Registry
from knative_gateway.resources.objects import Object, child
from knative_gateway.resources.patches import json_patches

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_BEARER: Final[Object] = {"type": "http", "scheme": "bearer"}
_CREATES: Final = frozenset({"post", "patch"})
"""Actions that can make an object: a server-side apply is a patch."""
_ANYTHING: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def index(registry: Registry) -> dict[str, object]:
    """Return `/openapi/v3`: the paths of the documents."""
    names = dict.fromkeys(version_path(kind.group, kind.version) for kind in registry.kinds)
    return {
        "paths": {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={_digest(registry)}"} for name in names
        }
    }


def document(registry: Registry, group: str, version: str) -> dict[str, object] | None:
    """Return the document of one group and version, or None."""
    kinds = registry.of_version(group, version)
    return _document(kinds) if kinds else None


def whole(registry: Registry) -> dict[str, object]:
    """Return one document for everything that is served over HTTP, including ingress and health."""
    made = _document(registry.kinds)
    return {**made, "paths": {**INGRESS, **child(made, "paths")}, "security": [{"bearer": []}, {}]}


def _document(kinds: Iterable[Kind]) -> dict[str, object]:
    paths: dict[str, object] = {}
    schemas: dict[str, object] = {
        f"{_META}.ObjectMeta": METADATA,
        f"{_META}.Status": {
            **_ANYTHING,
            "description": "The result of a request that does not return an object. Every error is a Status.",
        },
    }
    for kind in kinds:
        schemas |= _schemas(kind)
        paths |= _paths(kind)
    components = {"schemas": schemas, "securitySchemes": {"bearer": _BEARER}}
    return {"openapi": "3.0.0", "info": _info(), "paths": paths, "components": components}


def _info() -> dict[str, object]:
    return {"title": "knative-gateway", "version": __version__}


def _digest(registry: Registry) -> str:
    """Return a hash that changes with the served schemas. Clients cache the documents by it."""
    served = [[kind.full_name, kind.version, kind.schema] for kind in registry.kinds]
    return sha256(json.dumps([__version__, served], sort_keys=True).encode()).hexdigest()[:32]


def version_path(group: str, version: str) -> str:
    """Return the path of one version of a group, without a leading slash."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def schema_name(kind: Kind) -> str:
    """Return the name of a schema as in Kubernetes: the labels of the group in reverse order,
    version, kind.
    """
    domain = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{domain}.{kind.version}.{kind.kind}"


def _schemas(kind: Kind) -> dict[str, object]:
    identity = [_identity(kind)]
    common = {
        "apiVersion": {"type": "string", "description": "The version of this object's schema."},
        "kind": {"type": "string", "description": "What the object is."},
        "metadata": {
            "allOf": [_reference(f"{_META}.ObjectMeta")],
            "description": "Names, labels, annotations.",
        },
    }
    one = {
        **kind.schema,
        "properties": {**common, **child(kind.schema, "properties")},
        "x-kubernetes-group-version-kind": identity,
    }
    listed = {
        "type": "object",
        "properties": {
            **common,
            "metadata": _ANYTHING,
            "items": {"type": "array", "items": _reference(schema_name(kind))},
        },
        "required": ["items"],
    }
    return {schema_name(kind): one, f"{schema_name(kind)}List": listed}


def _identity(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _reference(name: str) -> dict[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}


def _paths(kind: Kind) -> dict[str, object]:
    root = f"/{version_path(kind.group, kind.version)}"
    inside = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    namespace = [_in_path("namespace")] if kind.namespaced else []
    named = [*namespace, _in_path("name")]
    one, listed = _reference(schema_name(kind)), _reference(f"{schema_name(kind)}List")
    many = _operation(
        kind,
        "list",
        listed,
        _query(
            "labelSelector",
            "fieldSelector",
            "limit",
            "continue",
            "resourceVersion",
            "watch",
            "timeoutSeconds",
            "allowWatchBookmarks",
        ),
    )
    whole = {
        "get": _operation(kind, "get", one, []),
        "put": _operation(kind, "put", one, _writing(), one),
        "patch": _operation(
            kind, "patch", one, [*_writing(), *_query("force")], _ANYTHING, types=_patches(kind)
        ),
        "parameters": named,
    }
    collection = {
        "get": many,
        "post": _operation(kind, "post", one, _writing(), one),
        "delete": _operation(
            kind, "deletecollection", listed, _query("labelSelector", "fieldSelector", "dryRun")
        ),
        "parameters": namespace,
    }
    removal = _operation(kind, "delete", _reference(f"{_META}.Status"), _query("dryRun"))
    paths: dict[str, object] = {
        f"{inside}/{kind.plural}": collection,
        f"{inside}/{kind.plural}/{{name}}": {**whole, "delete": removal},
    }
    if kind.namespaced:
        paths[f"{root}/{kind.plural}"] = {"get": many}
    if kind.status:
        paths[f"{inside}/{kind.plural}/{{name}}/status"] = whole
    if actions.applies(kind, actions.DELIVERIES):
        get = _operation(kind, "get", _ANYTHING, [])
        paths[f"{inside}/{kind.plural}/{{name}}/{actions.DELIVERIES}"] = {"get": get, "parameters": named}
    for action in (each for each in actions.POSTED if actions.applies(kind, each)):
        paths[f"{inside}/{kind.plural}/{{name}}/{action}"] = {
            "post": _operation(kind, "connect", _ANYTHING, [], _ANYTHING),
            "parameters": named,
        }
    return paths


def _patches(kind: Kind) -> list[str]:
    return [
        json_patches.APPLY,
        json_patches.JSON,
        json_patches.MERGE,
        *([json_patches.STRATEGIC] if kind.group == CORE else []),
    ]


def _operation(
    kind: Kind,
    action: str,
    result: Object,
    parameters: list[Object],
    body: Object | None = None,
    *,
    types: Iterable[str] = ("application/json",),
) -> dict[str, object]:
    answer = {"description": "OK", "content": {"application/json": {"schema": result}}}
    error = {
        "description": "refused",
        "content": {"application/json": {"schema": _reference(f"{_META}.Status")}},
    }
    made: dict[str, object] = {
        "tags": [kind.full_name],
        "responses": {
            "200": answer,
            **({"201": {**answer, "description": "Created"}} if action in _CREATES else {}),
            **dict.fromkeys(("4XX", "503", *(("501",) if action == "connect" else ())), error),
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(kind),
    }
    if parameters:
        made["parameters"] = parameters
    if body is not None:
        made["requestBody"] = {"content": {each: {"schema": body} for each in types}}
    return made


def _writing() -> list[Object]:
    return _query("dryRun", "fieldManager", "fieldValidation")


def _query(*names: str) -> list[Object]:
    return [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]


def _in_path(name: str) -> Object:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
