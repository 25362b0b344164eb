"""Documents and patches as clients send them: JSON, YAML, protobuf; JSON patch, merge patches, apply. What is
read can be written and read again, and JSON means the same read as YAML; a patch changes its document as its
RFC says, or is refused.
"""

import json
from typing import Final

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from knative_gateway.api.protobuf import MAGIC, ProtobufError, read_protobuf
from knative_gateway.resources.documents.manifests import (
    ManifestError,
    check_text,
    objects,
    read_json,
    read_yaml,
    written_yaml,
)
from knative_gateway.resources.jsonpath import find
from knative_gateway.resources.objects import Object, same
from knative_gateway.resources.patches import applying, json_patches
from knative_gateway.resources.patches.applying import Manager
from knative_gateway.resources.patches.strategic import strategic_patch
from knative_gateway.resources.refusals import StatusError
from knative_gateway.resources.schema.fields import fields_v1, leaves, read_fields
from knative_gateway.resources.schema.own_kinds import TRIGGER
from knative_gateway.resources.selectors import field_selector, label_selector

WORDS: Final = (
    b"{", b"}", b"[", b"]", b",", b":", b'"a":', b'"a"', b"null", b"true", b"-0", b"1e999", b"1e3",
    b"9" * 30, b"NaN", b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b"\xff", b"\xef\xbb\xbf", b"---\n",
    b"...\n", b"- ", b"a: ", b"? ", b"&a ", b"*a", b"<<: *a\n", b"!!bool ", b"!!int 0x_",
    b"!!python/object:os.system ", b"!<tag:yaml.org,2002:str> ", b"|\n  x\n", b">-\n", b"0o17", b"0b1",
    b"017", b"1:30", b"2001-01-01", b".inf", b"~", b"yes", b"'", b"#", b"%YAML 1.1\n", b"\t", b"\n", b"  ",
    b"\x85", b"\\x41", b"a: &b [*b]\n",
)  # fmt: skip
_POINTERS: Final = (
    "",
    "/",
    "/a",
    "/a/0",
    "/a/-",
    "/b~1c",
    "/~0",
    "/~2",
    "a",
    "/a/00",
    "/a/1e0",
    "/a/9999999999",
    "/l/1",
    "/l/-1",
    "/o/a",
)
_STEPS: Final = (
    ".",
    "a",
    "[0]",
    "[*]",
    "[?(@.type=='Ready')]",
    "\\.",
    "['a']",
    "{",
    "}",
    "..",
    "[-1]",
    "$",
    "[",
    "l",
    "o",
    ".status",
)
_SELECTORS: Final = (
    "a",
    "=",
    "==",
    "!=",
    "in",
    "notin",
    "(",
    ")",
    ",",
    " ",
    "!",
    "x/y",
    "metadata.name",
    "<",
    ">",
    "5",
    "\\",
    "b",
    "\u00e9",
)


def run(data: bytes) -> str:
    """The first byte chooses a reader, patch or path."""
    draw = Draw(data)
    return (_json, _yaml, _yaml, _protobuf, _patched, _patched, _applied, _chosen)[draw.byte() % 8](draw)


def _written(draw: Draw) -> bytes:
    if draw.chance(3):
        return draw.rest()
    if draw.chance(2):
        made = value(draw)
        whole = json.dumps(made).encode() if draw.chance(2) else written_yaml(made).encode()
        at = draw.below(len(whole) + 1)
        return whole[:at] + (draw.pick(WORDS) if draw.chance(2) else b"") + whole[at:]
    return b"".join(
        draw.pick(WORDS) if not draw.chance(6) else draw.raw(8) for _ in range(min(draw.left, 4000))
    )


def _json(draw: Draw) -> str:
    written = _written(draw)
    try:
        read = read_json(written)
    except ManifestError as error:
        return str(error)[:24]
    _can_be_stored(read)
    again = read_yaml(written_yaml(read).encode())
    if again != ([] if read is None else [read]):
        message = f"{read!r} is written as YAML and read as {again!r}"
        raise WrongError(message)
    return f"json {type(read).__name__}"


def _yaml(draw: Draw) -> str:
    try:
        read = read_yaml(_written(draw))
    except ManifestError as error:
        return "".join("#" if character.isdigit() else character for character in str(error))[:50]
    _can_be_stored(read)
    for document in read:
        if read_json(json.dumps(document).encode()) != document:
            message = f"{document!r} is not the same as JSON"
            raise WrongError(message)
        if read_yaml(written_yaml(document).encode()) != [document]:
            message = f"{document!r} is not the same after it was written"
            raise WrongError(message)
    try:
        found = len(objects(read))
    except ManifestError:
        found = -1
    return f"{[type(document).__name__ for document in read][:3]} {found}"


def _protobuf(draw: Draw) -> str:
    kind = draw.pick(
        (b"ConfigMap", b"Service", b"Namespace", b"DeleteOptions", b"SelfSubjectAccessReview", b"Pod")
    )
    version = b"authorization.k8s.io/v1" if kind.startswith(b"Self") else b"v1"
    meta = _field(1, version) + _field(2, kind)
    body = MAGIC + _field(1, meta) + _field(2, b"".join(_field_of(draw, 0) for _ in range(draw.below(8))))
    if draw.chance(6):
        body = draw.raw(6) + draw.rest()
    elif draw.chance(4):
        body = body[: draw.below(len(body) + 1)]
    try:
        read = read_protobuf(body)
    except ProtobufError as error:
        return str(error)[:24]
    _can_be_stored(read)
    return f"protobuf {sorted(read)}"


def _field_of(draw: Draw, depth: int) -> bytes:
    number = draw.byte() % 16
    if draw.chance(3):
        return _varint(number << 3) + _varint(draw.number(draw.byte() % 10))
    if draw.chance(2) and depth < 4:
        return _field(number, b"".join(_field_of(draw, depth + 1) for _ in range(draw.below(5))))
    return _field(number, draw.raw(12)) if not draw.chance(12) else draw.raw(9)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _can_be_stored(read: object) -> None:
    """Written as JSON for the database, sent as UTF-8, within 64 bits."""
    check_text(read)
    written = json.dumps(read, allow_nan=False)
    if not same(json.loads(written), read):
        message = f"{read!r} is another value when it is read from the database"
        raise WrongError(message)


def value(draw: Draw, depth: int = 0) -> object:
    """A JSON value."""
    simple = (None, True, False, 0, 1, -1.5, 1 << 62, "", "a", "Ready", "\u00e9")
    if depth > 5 or draw.chance(2):
        return draw.pick(simple)
    if draw.chance(2):
        return [value(draw, depth + 1) for _ in range(draw.below(4))]
    return {_name(draw): value(draw, depth + 1) for _ in range(draw.below(4))}


def _name(draw: Draw) -> str:
    names = (
        "a",
        "l",
        "o",
        "b/c",
        "~",
        "name",
        "type",
        "$patch",
        "$retainKeys",
        "$setElementOrder/l",
        "$deleteFromPrimitiveList/l",
        "ports",
        "spec",
    )
    return draw.pick(names)


def _patched(draw: Draw) -> str:
    target: Object = {
        "a": [1, 2],
        "b/c": 1,
        "~": 2,
        "l": value(draw),
        "o": value(draw),
        "spec": {"ports": [{"port": 1, "name": "x"}]},
    }
    before = json.dumps(target)
    try:
        if draw.chance(2):
            operations: object = [_operation(draw) for _ in range(draw.below(8))] + _copies(draw)
            patched, again = json_patches.json_patch(target, operations), None
        elif draw.chance(2):
            merging = value(draw)
            patched = json_patches.merge_patch(target, merging)
            again = json_patches.merge_patch(patched, merging)
        else:
            patched, again = strategic_patch(target, value(draw)), None
    except StatusError as error:
        if error.code not in {400, 413, 422}:
            raise
        return f"{error.code} {error!s:.30}"
    finally:
        if json.dumps(target) != before:
            raise WrongError("a patch changes the stored object in place")
    _can_be_stored(patched)
    if again is not None and again != patched:
        message = f"a merge patch carried out again makes {again!r} of {patched!r}"
        raise WrongError(message)
    return f"patched {type(patched).__name__}"


def _copies(draw: Draw) -> list[object]:
    """Each doubles the document."""
    return [{"op": "copy", "from": "", "path": "/a/-"}] * draw.below(30) if draw.chance(6) else []


def _operation(draw: Draw) -> object:
    if draw.chance(24):
        return value(draw)
    operation: dict[str, object] = {
        "op": draw.pick(("add", "remove", "replace", "move", "copy", "copy", "test", "x")),
        "path": draw.pick(_POINTERS),
    }
    if not draw.chance(8):
        operation |= {"from": draw.pick(_POINTERS), "value": value(draw)}
    return operation


def _applied(draw: Draw) -> str:
    """Server-side apply of one manager after another, and plain writes between them."""
    object_: dict[str, object] = {"metadata": {"name": "x"}}
    shown = []
    for step in range(1 + draw.below(5)):
        name = draw.pick(("a", "b"))
        change: dict[str, object] = {
            "metadata": {"name": "x", "labels": value(draw)},
            "spec": {_name(draw): value(draw) for _ in range(draw.below(4))},
        }
        now = f"2026-01-01T00:00:0{step}Z"
        try:
            if draw.chance(3):
                changed = {**object_, **change}
                object_ = applying.updated(object_, changed, Manager(name, applying.UPDATE, ""), now, TRIGGER)
            else:
                object_ = applying.apply(
                    object_, change, Manager(name, applying.APPLY, ""), now, TRIGGER, force=draw.chance(2)
                )
        except StatusError as error:
            if error.code not in {400, 409}:
                raise
            shown.append(str(error.code))
            continue
        shown.append("ok")
        known = applying.owners(object_)
        if applying.owners(applying.with_owners(object_, known)) != known:
            message = f"{known!r} are not the same after they were written"
            raise WrongError(message)
        _can_be_stored(object_)
    paths = frozenset(leaves(object_, TRIGGER))
    if frozenset(read_fields(fields_v1(paths))) != paths:
        message = f"{paths!r} are other paths after they were written"
        raise WrongError(message)
    return " ".join(shown)


def _chosen(draw: Draw) -> str:
    """Paths of printer columns and selectors of lists."""
    document = {
        "a": value(draw),
        "l": [value(draw)],
        "o": {"a": value(draw)},
        "metadata": {"name": "x", "labels": {"a": "5", "x/y": "b"}},
    }
    path = "".join(draw.pick(_STEPS) for _ in range(draw.below(40))) if not draw.chance(4) else draw.text(200)
    found = find(document, path)
    shown = [str(len(found))]
    for made in (label_selector, lambda written: field_selector(written, TRIGGER)):
        written = "".join(draw.pick(_SELECTORS) for _ in range(draw.below(20)))
        try:
            shown.append(str(made(written)(document)))
        except StatusError as error:
            if error.code != 400:
                raise
            shown.append("400")
    return " ".join(shown)


TARGET: Final = Target("documents", run, seconds_max=0.2, seconds_per_kib=0.02, words=WORDS)
