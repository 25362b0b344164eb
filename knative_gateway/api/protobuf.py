r"""Reads core objects in protobuf, as newer Go clients send them. Answers are always JSON. Pure.

  k8s\\0 | Unknown {1: TypeMeta {1: apiVersion, 2: kind}, 2: the message of the object}

Fields that a table does not name are skipped, as in every protobuf reader. An empty text means that the field
was not set.

Spec: Kubernetes API concepts, "Kubernetes Protobuf encoding"; field numbers from the generated.proto of
k8s.io/api and apimachinery.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MAGIC: Final = b"k8s\x00"
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"


class ProtobufError(ValueError):
    """The body is not a supported Kubernetes protobuf message."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field. `type` is text, bytes, int, bool, map, bytes-map, time, int-or-string, or `message` with a
    table.
    """

    name: str
    type: str = "text"
    table: "Mapping[int, _Field] | None" = None
    repeated: bool = False


def _message(name: str, table: "Mapping[int, _Field]", *, repeated: bool = False) -> _Field:
    return _Field(name, "message", table, repeated)


_TYPE_META: Final = {1: _Field("apiVersion"), 2: _Field("kind")}
_METADATA: Final = {
    1: _Field("name"),
    2: _Field("generateName"),
    3: _Field("namespace"),
    5: _Field("uid"),
    6: _Field("resourceVersion"),
    7: _Field("generation", "int"),
    8: _Field("creationTimestamp", "time"),
    11: _Field("labels", "map"),
    12: _Field("annotations", "map"),
    14: _Field("finalizers", repeated=True),
}
_PORT: Final = {
    1: _Field("name"),
    2: _Field("protocol"),
    3: _Field("port", "int"),
    4: _Field("targetPort", "int-or-string"),
    5: _Field("nodePort", "int"),
    6: _Field("appProtocol"),
}
_SERVICE: Final = {
    1: _message("ports", _PORT, repeated=True),
    2: _Field("selector", "map"),
    3: _Field("clusterIP"),
    4: _Field("type"),
    5: _Field("externalIPs", repeated=True),
    7: _Field("sessionAffinity"),
    10: _Field("externalName"),
}
_ASKED: Final = {
    1: _Field("namespace"),
    2: _Field("verb"),
    3: _Field("group"),
    5: _Field("resource"),
    7: _Field("name"),
}
_OBJECT: Final = _message("metadata", _METADATA)
_KINDS: Final[Mapping[tuple[str, str], Mapping[int, _Field]]] = {
    ("v1", "ConfigMap"): {
        1: _OBJECT,
        2: _Field("data", "map"),
        3: _Field("binaryData", "bytes-map"),
        4: _Field("immutable", "bool"),
    },
    ("v1", "Namespace"): {1: _OBJECT},
    ("v1", "Service"): {1: _OBJECT, 2: _message("spec", _SERVICE)},
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {
        1: _OBJECT,
        2: _message("spec", {1: _message("resourceAttributes", _ASKED)}),
    },
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): {
        1: _OBJECT,
        2: _message("spec", {1: _Field("namespace")}),
    },
    **{
        (f"authentication.k8s.io/{version}", "SelfSubjectReview"): {1: _OBJECT}
        for version in ("v1", "v1beta1", "v1alpha1")
    },
}
_OPTIONS: Final = {
    1: _Field("gracePeriodSeconds", "int"),
    2: _message("preconditions", {1: _Field("uid"), 2: _Field("resourceVersion")}),
    4: _Field("propagationPolicy"),
    5: _Field("dryRun", repeated=True),
}


def read_protobuf(raw: bytes) -> dict[str, object]:
    """Return the object in a message.

    Raises:
      ProtobufError: the message is malformed, or its kind is accepted as JSON only.
    """
    if not raw.startswith(MAGIC):
        message = "the body does not begin like a Kubernetes protobuf"
        raise ProtobufError(message)
    envelope = _read(raw[len(MAGIC) :], {1: _message("type", _TYPE_META), 2: _Field("raw", "bytes")})
    type_, content = envelope.get("type"), envelope.get("raw", b"")
    identity = (
        (str(type_.get("apiVersion", "")), str(type_.get("kind", "")))
        if isinstance(type_, dict)
        else ("", "")
    )
    table = _OPTIONS if identity[1] == "DeleteOptions" else _KINDS.get(identity)
    if table is None or not isinstance(content, bytes):
        message = f"{' '.join(identity)[:100]} is accepted as JSON only"
        raise ProtobufError(message)
    return {"apiVersion": identity[0], "kind": identity[1], **_read(content, table)}


def _read(raw: bytes, table: Mapping[int, _Field]) -> dict[str, object]:
    found: dict[str, object] = {}
    for number, value in _fields(raw):
        field = table.get(number)
        if field is None:
            continue
        read = _value(field, value)
        if field.repeated:
            several = found.setdefault(field.name, [])
            assert isinstance(several, list)
            several.append(read)
        elif field.type in {"map", "bytes-map"}:
            together = found.setdefault(field.name, {})
            assert isinstance(together, dict)
            assert isinstance(read, dict)
            together.update(read)
        elif read not in ("", None):
            found[field.name] = read
    return found


def _value(field: _Field, value: int | bytes) -> object:
    if isinstance(value, int) is not (field.type in _NUMBERS):
        message = f"{field.name} has another type"
        raise ProtobufError(message)
    if isinstance(value, int):
        signed = value - (1 << 64) if value >= 1 << 63 else value
        return bool(value) if field.type == "bool" else signed
    return _read(value, field.table) if field.table is not None else _READERS[field.type](value)


def _texts(raw: bytes) -> dict[str, object]:
    return _entry(raw, "text")


def _binaries(raw: bytes) -> dict[str, object]:
    entry = _entry(raw, "bytes")
    return {
        key: base64.b64encode(each if isinstance(each, bytes) else b"").decode()
        for key, each in entry.items()
    }


def _int_or_string(raw: bytes) -> object:
    parts = _read(raw, {1: _Field("type", "int"), 2: _Field("number", "int"), 3: _Field("text")})
    return parts.get("text", "") if parts.get("type") else parts.get("number", 0)


def _entry(raw: bytes, type_: str) -> dict[str, object]:
    parts = _read(raw, {1: _Field("key"), 2: _Field("value", type_)})
    return {str(parts.get("key", "")): parts.get("value", "" if type_ == "text" else b"")}


def _time(raw: bytes) -> object:
    seconds = _read(raw, {1: _Field("seconds", "int")}).get("seconds")
    try:
        return (
            datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if isinstance(seconds, int) and seconds > 0
            else None
        )
    except (ValueError, OverflowError, OSError):
        return None


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        message = "a string in the body is not valid UTF-8"
        raise ProtobufError(message) from None


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and values of the fields in their order."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        match tag & 7:
            case 0:
                value, position = _varint(raw, position)
                yield tag >> 3, value
            case 2:
                length, position = _varint(raw, position)
                if position + length > len(raw):
                    message = "the body ends too early"
                    raise ProtobufError(message)
                yield tag >> 3, raw[position : position + length]
                position += length
            case 1:
                position += 8
            case 5:
                position += 4
            case _:
                message = "the body has a field of an unknown type"
                raise ProtobufError(message)


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(raw):
            break
        byte = raw[position]
        value, position = value | (byte & 0x7F) << shift, position + 1
        if byte < 0x80:
            return value, position
    message = "the body has a number that is too long"
    raise ProtobufError(message)


_NUMBERS: Final = frozenset({"int", "bool"})
_READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "text": _text,
    "bytes": bytes,
    "map": _texts,
    "bytes-map": _binaries,
    "time": _time,
    "int-or-string": _int_or_string,
}
