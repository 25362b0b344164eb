"""The columns of the list of connections."""

from amqp_streams import names
from web_console.showing.connections import COLUMNS, SORT_FIRST, protocol, sort_of


def test_each_order_is_one_that_the_node_has() -> None:
    sorts = [column.sort for column in COLUMNS if column.sort]
    assert len(set(sorts)) == len(sorts) == 9
    assert set(sorts) <= set(names.CONNECTION_SORTS)


def test_an_order_that_no_column_has_is_the_first_one() -> None:
    assert sort_of("user") == "user"
    assert sort_of("colour") == sort_of("") == sort_of(None) == SORT_FIRST


def test_protocols_have_their_names() -> None:
    assert protocol("amqp", tls=False) == "AMQP"
    assert protocol("websocket", tls=True) == "WebSocket with TLS"
    assert protocol("quic", tls=False) == "quic"
