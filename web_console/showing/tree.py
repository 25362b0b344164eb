"""A JSON or AMQP value as a tree for a page. Pure.

Laws: a tree has at most `NODES_MAX` nodes and `DEPTH_MAX` levels, whatever the value is. What is left out is
counted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from amqp_streams.wire.codec import Array, Described, Symbol, Timestamp
from service_parts.texts import printable
from web_console.showing import numbers

NODES_MAX: Final = 2000
DEPTH_MAX: Final = 24
_TEXT_MAX: Final = 4096
_BYTES_MAX: Final = 256
_BITS_MAX: Final = 4096


@dataclass(slots=True)
class Node:
    """A value with its name in the value around it.

    `kind`: its type, in the words of AMQP or JSON. `children`: of a map or list. `left_out`: how many of them
    are not shown.
    """

    name: str
    kind: str
    text: str
    children: list["Node"] = field(default_factory=list)
    left_out: int = 0


def tree_of(value: object, name: str = "") -> Node:
    """Return the tree of a value."""
    return _node(name, value, _Room(NODES_MAX), 0)


@dataclass(slots=True)
class _Room:
    """How many nodes may still be made."""

    left: int


def _node(name: str, value: object, room: _Room, depth: int) -> Node:
    room.left -= 1
    if isinstance(value, Described):
        inner = _node(name, value.value, room, depth + 1) if depth < DEPTH_MAX else Node(name, "", "")
        inner.kind = f"{text_of(value.descriptor)} {inner.kind}".strip()
        return inner
    if isinstance(value, Mapping):
        entries = ((text_of(key), each) for key, each in value.items())
        return _branch(
            Node(name, "map", _counted(len(value), "entry", "entries")), entries, len(value), room, depth
        )
    if isinstance(value, list | Array):
        items = value.items if isinstance(value, Array) else value
        entries = ((str(index), each) for index, each in enumerate(items))
        return _branch(
            Node(name, "list", _counted(len(items), "item", "items")), entries, len(items), room, depth
        )
    return Node(name, kind_of(value), text_of(value))


def _branch(node: Node, entries: Iterable[tuple[str, object]], count: int, room: _Room, depth: int) -> Node:
    if depth < DEPTH_MAX:
        for name, value in entries:
            if room.left <= 0:
                break
            node.children.append(_node(name, value, room, depth + 1))
    node.left_out = count - len(node.children)
    return node


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def kind_of(value: object) -> str:
    """Return the type of a value that has no parts."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case bytes():
            return "binary"
        case Symbol():
            return "symbol"
        case Timestamp():
            return "timestamp"
        case _:
            name = type(value).__name__.lower()
            return {"str": "string", "int": "integer", "float": "number"}.get(name, name)


def text_of(value: object) -> str:
    """Return a value without parts as text, cut if it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, bytes):
        shown = value[:_BYTES_MAX].hex(" ")
        return shown if len(value) <= _BYTES_MAX else f"{shown} … ({len(value):,} bytes)"
    if isinstance(value, Timestamp):
        return numbers.time(int(value))
    if isinstance(value, str):
        start = printable(value[:_TEXT_MAX])
        return start if len(value) <= _TEXT_MAX else f"{start} … ({len(value):,} characters)"
    # A JSON text may have integers of any size.
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        return f"an integer of {value.bit_length():,} bits"
    return str(value)[:_TEXT_MAX]
