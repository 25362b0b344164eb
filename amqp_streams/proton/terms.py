"""Values that travel in performatives, in and out of Proton's own data: maps and errors."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cproton_ffi import ffi, lib

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Array, Symbol, Value, decode, encode

_BYTES_MAX: Final = 1 << 20
"""Of one value; frames have 64 KiB, and some values are shorter there."""


def put_map(data: Any, entries: Mapping[str, object]) -> None:
    """Write link properties or a filter set. Raises WireError for a value that has no AMQP type."""
    encoded = encode({Symbol(key): value for key, value in entries.items()})
    written = lib.pn_data_decode(data, encoded, len(encoded))
    assert written == len(encoded), written


def put_symbols(data: Any, symbols: Sequence[str]) -> None:
    """Write capabilities."""
    encoded = encode(Array(Symbol, tuple(map(Symbol, symbols))))
    written = lib.pn_data_decode(data, encoded, len(encoded))
    assert written == len(encoded), written


def read_condition(pointer: Any, otherwise: str) -> tuple[str, str, dict[str, object]]:
    """Name, description and info of an error that the peer gave; `otherwise` is the name where it gave none."""
    if not lib.pn_condition_is_set(pointer):
        return otherwise, "", {}
    name, description = lib.pn_condition_get_name(pointer), lib.pn_condition_get_description(pointer)
    return (
        read_text(name) or names.INTERNAL_ERROR,
        read_text(description),
        read_map(lib.pn_condition_info(pointer)),
    )


def read_text(pointer: Any) -> str:
    """A C string of Proton's; empty when there is none."""
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")


def read_symbols(data: Any) -> list[str]:
    """One symbol or an array of them that the peer sent outside of a message; empty when it sent something else."""
    value = _read(data)
    items = value.items if isinstance(value, Array) else (value,)
    return [str(item) for item in items if isinstance(item, Symbol)]


def read_map(data: Any) -> dict[str, object]:
    """A map that the peer sent outside of a message; empty when it sent none or one that is broken."""
    value = _read(data)
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _read(data: Any) -> Value:
    if data == ffi.NULL:  # what a peer left out has no data at all, and Proton's functions do not look
        return None
    size = lib.pn_data_encoded_size(data)
    if not 0 < size <= _BYTES_MAX:
        return None
    buffer = ffi.new("char[]", size)
    lib.pn_data_rewind(data)
    written = lib.pn_data_encode(data, buffer, size)
    if written <= 0:
        return None
    try:
        return decode(bytes(ffi.buffer(buffer, written)))[0]
    except WireError:
        return None
