"""Errors, as a peer gave them and as a peer gets them."""

from cproton_ffi import lib

from amqp_streams.errors import PeerError
from amqp_streams.proton.conditions import condition_text, read_condition, write_condition
from amqp_streams.proton.values import read_value, write_map
from amqp_streams.wire.types import Symbol, ULong, UShort


def test_conditions_are_shown_in_one_line() -> None:
    connection = lib.pn_connection()
    condition = lib.pn_connection_condition(connection)
    assert condition_text(condition) == ""
    write_condition(condition, PeerError("amqp:not-found", "no such log"))
    assert condition_text(condition) == "amqp:not-found: no such log"
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)


def test_the_details_of_an_error_keep_their_types() -> None:
    """AMQP 2.8.14: the keys are symbols; a redirect's port is a number."""
    connection = lib.pn_connection()
    condition = lib.pn_connection_condition(connection)
    info: dict[str, str | int] = {
        "hostname": "other",
        "port": UShort(5671),
        "epoch": ULong(7),
        "partition": Symbol("3"),
    }
    write_condition(condition, PeerError("amqp:link:redirect", "elsewhere", info))
    said = read_value(lib.pn_condition_info(condition))
    assert isinstance(said, dict)
    assert {(type(key), key, type(value), value) for key, value in said.items()} == {
        (Symbol, "hostname", str, "other"),
        (Symbol, "port", UShort, 5671),
        (Symbol, "epoch", ULong, 7),
        (Symbol, "partition", Symbol, "3"),
    }
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)


def test_an_error_that_a_peer_did_not_give_has_our_name() -> None:
    connection = lib.pn_connection()
    condition = lib.pn_connection_condition(connection)
    assert read_condition(condition, "closed by the peer") == ("closed by the peer", "", {})
    lib.pn_condition_set_name(condition, b"amqp:not-allowed")
    assert read_condition(condition, "") == ("amqp:not-allowed", "", {})
    lib.pn_condition_set_description(condition, b"no \xff")
    write_map(lib.pn_condition_info(condition), {"field": "x"})
    assert read_condition(condition, "") == ("amqp:not-allowed", "no \ufffd", {"field": "x"})
    lib.pn_connection_release(connection)
