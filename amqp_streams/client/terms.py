"""Values that travel in performatives, in and out of Proton's own data: maps and errors."""

from collections.abc import Mapping
from typing import Any

from cproton_ffi import ffi, lib

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Symbol, decode, encode


def put_map(data: Any, entries: Mapping[str, object]) -> None:
    """Write link properties or a filter set. Raises WireError for a value that has no AMQP type."""
    encoded = encode({Symbol(key): value for key, value in entries.items()})
    written = lib.pn_data_decode(data, encoded, len(encoded))
    assert written == len(encoded), written


def read_condition(pointer: Any, otherwise: str) -> tuple[str, str, dict[str, object]]:
    """Name, description and info of an error that the peer gave; `otherwise` is the name where it gave none."""
    if not lib.pn_condition_is_set(pointer):
        return otherwise, "", {}
    name, description = lib.pn_condition_get_name(pointer), lib.pn_condition_get_description(pointer)
    return (
        _text(name) or names.INTERNAL_ERROR,
        _text(description),
        read_map(lib.pn_condition_info(pointer)),
    )


def _text(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")


def read_map(data: Any) -> dict[str, object]:
    """A map that the peer sent outside of a message; empty when it sent none or one that is broken."""
    if data == ffi.NULL:  # what a peer left out has no data at all, and Proton's functions do not look
        return {}
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return {}
    buffer = ffi.new("char[]", size)
    lib.pn_data_rewind(data)
    written = lib.pn_data_encode(data, buffer, size)
    if written <= 0:
        return {}
    try:
        value, _ = decode(bytes(ffi.buffer(buffer, written)))
    except WireError:
        return {}
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}
