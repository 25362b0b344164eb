"""Values in performatives: maps, capabilities and texts, read from and written to Proton's data objects.

Law: values from a peer are limited (`VALUE_BYTES_MAX`) and decoded by our own codec, on both sides.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from cproton_ffi import ffi, lib

from amqp_streams import names
from amqp_streams.errors import PeerError, WireError
from amqp_streams.proton.pointers import NULL, Pointer
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import Array, Symbol, Value

VALUE_BYTES_MAX: Final = 1 << 20
"""The largest size of one value in bytes, as Proton encodes it."""


def text(pointer: Pointer) -> str | None:
    """Return a C string of the peer, or None.

    Bytes that are not UTF-8 are replaced: the text is only used for look-ups and shown to people.
    """
    return None if pointer == NULL else ffi.string(pointer).decode("utf-8", "replace")


def data_size(data: Pointer) -> int:
    """Encoded size of a value in bytes. 0: absent or empty."""
    return 0 if data == NULL else lib.pn_data_encoded_size(data)


def read_value(data: Pointer) -> Value:
    """Return the value in Proton's data; None if it is absent or empty.

    Raises:
        PeerError: it has more than VALUE_BYTES_MAX bytes, is nested too deeply, or is malformed.
    """
    size = data_size(data)
    if size <= 0:
        return None
    if size > VALUE_BYTES_MAX:
        raise PeerError(
            names.RESOURCE_LIMIT_EXCEEDED,
            f"a map in a performative has {size} bytes, and at most {VALUE_BYTES_MAX} are allowed",
        )
    buffer = ffi.new("char[]", size)
    lib.pn_data_rewind(data)  # Proton's encoder begins where the last reader stopped
    written = lib.pn_data_encode(data, buffer, size)
    try:
        return decode(bytes(ffi.buffer(buffer, max(0, written))))[0]
    except WireError as error:
        raise PeerError(names.DECODE_ERROR, str(error)) from error


def read_map(data: Pointer) -> dict[str, object]:
    """A map that is not essential. Empty if the peer sent none, or one that is too large or malformed."""
    value = _read_leniently(data)
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def read_symbols(data: Pointer) -> list[str]:
    """Return capabilities: one symbol or an array of symbols (AMQP 3.2).

    Empty if the peer sent something else.
    """
    value = _read_leniently(data)
    items = value.items if isinstance(value, Array) else (value,)
    return [str(item) for item in items if isinstance(item, Symbol)]


def _read_leniently(data: Pointer) -> Value:
    try:
        return read_value(data)
    except PeerError:
        return None  # what the peer sent is not essential here: see the callers


def write_value(data: Pointer, value: object) -> None:
    """Replace the content of Proton's data by one value.

    Raises:
        WireError: the value has no AMQP type.
    """
    encoded = encode(value)
    lib.pn_data_clear(data)
    taken = lib.pn_data_decode(data, encoded, len(encoded))
    assert taken == len(encoded), f"the engine did not take {value!r}"


def write_map(data: Pointer, entries: Mapping[str, object] | Mapping[Symbol, object]) -> None:
    """Write properties or a filter set: a map with symbols as keys.

    Raises:
        WireError: a value has no AMQP type.
    """
    write_value(data, {Symbol(key): value for key, value in entries.items()})


def write_symbols(data: Pointer, symbols: Sequence[str]) -> None:
    """Write capabilities: an array of symbols."""
    write_value(data, Array(Symbol, tuple(map(Symbol, symbols))))
