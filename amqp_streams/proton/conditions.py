"""AMQP errors (2.8.14): why an endpoint or a delivery ended."""

from cproton_ffi import lib

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.values import read_map, text, write_map


def write_condition(condition: Pointer, error: PeerError) -> None:
    """Set the error with which an endpoint is closed."""
    lib.pn_condition_set_name(condition, error.condition.encode())
    lib.pn_condition_set_description(condition, error.description.encode())
    if error.info:
        write_map(lib.pn_condition_info(condition), error.info)


def read_condition(condition: Pointer, otherwise: str) -> tuple[str, str, dict[str, object]]:
    """Return name, description and info of the peer's error.

    `otherwise` is the name if the peer sent no error.
    """
    if not lib.pn_condition_is_set(condition):
        return otherwise, "", {}
    return (
        text(lib.pn_condition_get_name(condition)) or names.INTERNAL_ERROR,
        text(lib.pn_condition_get_description(condition)) or "",
        read_map(lib.pn_condition_info(condition)),
    )


def condition_text(condition: Pointer) -> str:
    """Return the peer's error as text for a log line. Empty if the peer sent none."""
    if not lib.pn_condition_is_set(condition):
        return ""
    return (
        f"{text(lib.pn_condition_get_name(condition))}:"
        f" {text(lib.pn_condition_get_description(condition)) or ''}"
    )
