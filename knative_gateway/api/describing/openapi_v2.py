"""The API's schemas as OpenAPI 2, in JSON and in protobuf. Pure.

kubectl before 1.27 uses this document for `explain`, for its own validation, and to find out whether the
server supports dry runs (from the PATCH of each kind). As in Kubernetes, what version 2 cannot express
(unknown fields kept, null or several types allowed) becomes a schema without restrictions, and the server
validates it. Core kinds with such a schema are omitted: their patch strategies would be lost, and clients
have these kinds built in.

Spec: OpenAPI 2.0. Field numbers are from gnostic's OpenAPIv2.proto.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from knative_gateway import __version__
from knative_gateway.api.describing.openapi import schema_name, version_path
from knative_gateway.resources.admission import METADATA
from knative_gateway.resources.kinds import CORE, Kind, Registry
from knative_gateway.resources.objects import Object, child, entries, text
from knative_gateway.resources.schema.checking import INT_OR_STRING, KEEP_UNKNOWN

_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_GVK: Final = "x-kubernetes-group-version-kind"
_IN_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation", "force")
_KEPT: Final = frozenset({"description", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"})
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})


def document(registry: Registry) -> dict[str, Any]:
    """Return the document as JSON."""
    definitions = {_METADATA: _schema(METADATA)}
    paths: dict[str, object] = {}
    for kind in registry.kinds:
        if kind.group != CORE or not _keeps_unknown(kind.schema):
            definitions[schema_name(kind)] = _definition(kind)
        inside = f"/{version_path(kind.group, kind.version)}" + (
            "/namespaces/{namespace}" if kind.namespaced else ""
        )
        paths[f"{inside}/{kind.plural}/{{name}}"] = {"patch": _patch(kind)}
    info = {"title": "knative-gateway", "version": __version__}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def encoded(made: Mapping[str, Any]) -> bytes:
    """Return the document as the protobuf message `openapi.v2.Document`."""
    info = _text(1, made["info"]["title"]) + _text(2, made["info"]["version"])
    paths = b"".join(
        _field(2, _text(1, name) + _field(2, _field(8, _operation(item["patch"]))))
        for name, item in made["paths"].items()
    )
    definitions = b"".join(_named(1, name, each) for name, each in made["definitions"].items())
    return _text(1, made["swagger"]) + _field(2, info) + _field(8, paths) + _field(9, definitions)


# -- schemas


def _definition(kind: Kind) -> dict[str, object]:
    made = _schema(kind.schema)
    common = {
        "apiVersion": {"type": "string", "description": "The version of this object's schema."},
        "kind": {"type": "string", "description": "What the object is."},
        "metadata": {"$ref": f"#/definitions/{_METADATA}", "description": "Names, labels, annotations."},
    }
    if (
        made.get("type") == "object"
    ):  # a schema without a type allows everything; with properties, clients would refuse other fields
        made["properties"] = {**common, **child(made, "properties")}
    return {**made, _GVK: [_identity(kind)]}


def _keeps_unknown(schema: Object) -> bool:
    return bool(schema.get(KEEP_UNKNOWN)) or any(
        _keeps_unknown(each) for each in child(schema, "properties").values() if isinstance(each, Mapping)
    )


def _schema(schema: Object) -> dict[str, object]:
    said = {name: value for name, value in schema.items() if name in _KEPT}
    type_ = text(schema, "type")
    if schema.get(KEEP_UNKNOWN) or schema.get("nullable") or schema.get(INT_OR_STRING):
        return {**said}
    if type_ in _SCALARS:
        return {**said, "type": type_, **({"format": schema["format"]} if "format" in schema else {})}
    if type_ == "array":
        return {**said, "type": "array", "items": _schema(child(schema, "items"))}
    if type_ != "object":
        return {**said}
    properties, others = child(schema, "properties"), schema.get("additionalProperties")
    if not properties:
        return {
            **said,
            "type": "object",
            **({"additionalProperties": _schema(others)} if isinstance(others, Mapping) else {}),
        }
    made: dict[str, object] = {
        name: _schema(each) for name, each in properties.items() if isinstance(each, Mapping)
    }
    needed = [name for name in entries(schema, "required") if isinstance(name, str)]
    return {**said, "type": "object", "properties": made, **({"required": needed} if needed else {})}


def _identity(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _patch(kind: Kind) -> dict[str, object]:
    parameters = [{"name": name, "in": "query", "type": "string"} for name in _IN_QUERY]
    return {"parameters": parameters, "responses": {"200": {"description": "OK"}}, _GVK: _identity(kind)}


# -- protobuf


def _operation(made: Mapping[str, Any]) -> bytes:
    # ParametersItem.parameter > Parameter.non_body_parameter > NonBodyParameter.query_parameter_sub_schema
    queries = (
        _text(2, each["in"]) + _text(4, each["name"]) + _text(6, each["type"]) for each in made["parameters"]
    )
    return b"".join(_field(8, _field(1, _field(2, _field(3, query)))) for query in queries) + _extensions(
        13, made
    )


def _message(schema: Mapping[str, Any]) -> bytes:
    """Encode a schema as `openapi.v2.Schema`."""
    parts = [
        _text(1, schema.get("$ref", "")),
        _text(2, schema.get("format", "")),
        _text(4, schema.get("description", "")),
    ]
    parts += [_text(19, name) for name in schema.get("required", ())]
    if "additionalProperties" in schema:
        parts.append(_field(21, _field(1, _message(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_field(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_field(23, _field(1, _message(schema["items"]))))
    if "properties" in schema:
        parts.append(
            _field(25, b"".join(_named(1, name, each) for name, each in schema["properties"].items()))
        )
    return b"".join(parts) + _extensions(31, schema)


def _named(number: int, name: str, schema: Mapping[str, Any]) -> bytes:
    return _field(number, _text(1, name) + _field(2, _message(schema)))


def _extensions(number: int, made: Mapping[str, Any]) -> bytes:
    """Encode extensions as `NamedAny`. Their values must be YAML; JSON is YAML."""
    found: Iterable[tuple[str, Any]] = (
        (name, value) for name, value in made.items() if name.startswith("x-")
    )
    return b"".join(
        _field(number, _text(1, name) + _field(2, _text(2, json.dumps(value)))) for name, value in found
    )


def _text(number: int, value: str) -> bytes:
    """Encode a string. As in protobuf, the empty string is omitted."""
    return _field(number, value.encode("utf-8", "replace")) if value else b""


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
