"""Messages in every form that AMQP allows, shared by the tests of sections."""

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st

from amqp_streams.wire.codec import Described, Symbol, encode

SYMBOLS = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}
VALUES = {
    0x70: [True],
    0x71: {Symbol("d"): 1},
    0x72: {Symbol("m"): 2},
    0x73: ["id", None, "to"],
    0x74: {"k": "v"},
    0x75: b"data",
    0x76: [1],
    0x77: "value",
    0x78: {Symbol("f"): 3},
}


def short(code: int, value: object) -> bytes:
    return b"\x00\x53" + bytes((code,)) + encode(value)


def long(code: int, value: object) -> bytes:
    return b"\x00\x80" + code.to_bytes(8) + encode(value)


def named(code: int, value: object) -> bytes:
    return encode(Described(Symbol(SYMBOLS[code]), None))[:-1] + encode(value)


def named_wide(code: int, value: object) -> bytes:
    name = SYMBOLS[code].encode()
    return b"\x00\xb3" + len(name).to_bytes(4) + name + encode(value)


def wide(code: int, value: object) -> bytes:
    """Return a message whose map has the 4-byte form, as Proton writes it."""
    entries = encode(value)[3:]
    return b"\x00\x53" + bytes((code, 0xD1)) + (len(entries) + 4).to_bytes(4) + (2).to_bytes(4) + entries


Form: TypeAlias = Callable[[int, object], bytes]
FORMS: list[Form] = [short, long, named, named_wide]
DATA = short(0x75, b"payload")

forms = st.sampled_from(FORMS)
heads = st.sets(st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74])).map(sorted)
bodies = st.sampled_from([[], [0x75], [0x75, 0x75], [0x76], [0x76, 0x76], [0x77]])


@st.composite
def messages(draw):
    """(codes, the bytes of each section) of a well-formed message that has something to store."""
    codes = draw(heads) + draw(bodies) + draw(st.sampled_from([[], [0x78]]))
    if not set(codes) - {0x71}:
        codes.append(0x75)
    return codes, [draw(forms)(code, VALUES[code]) for code in codes]
