"""The list of connections: its columns, and by which it can be ordered. Pure."""

from typing import Final, NamedTuple

from amqp_streams import names


class Column(NamedTuple):
    """A column of the list. `sort`: the node's name of the order; empty: none. `is_number`: to the right."""

    title: str
    sort: str
    is_number: bool = False


COLUMNS: Final = (
    Column("Connection", ""),
    Column("User", names.CURSOR_USER),
    Column("Peer", names.CONNECTION_PEER),
    Column("Container", names.CURSOR_CONTAINER),
    Column("Protocol", ""),
    Column("Since (UTC)", names.CONNECTION_SINCE),
    Column("Links", names.CONNECTION_LINKS, True),
    Column("Events in", names.TRAFFIC_EVENTS_IN + names.TRAFFIC_RATE, True),
    Column("Bytes in", names.TRAFFIC_BYTES_IN + names.TRAFFIC_RATE, True),
    Column("Events out", names.TRAFFIC_EVENTS_OUT + names.TRAFFIC_RATE, True),
    Column("Bytes out", names.TRAFFIC_BYTES_OUT + names.TRAFFIC_RATE, True),
    Column("Waits for", ""),
)
SORT_FIRST: Final = names.CONNECTION_SINCE
"""The order of the list at first: the oldest connection first."""
_SORTS: Final = frozenset(column.sort for column in COLUMNS if column.sort)


def sort_of(given: str | None) -> str:
    """The order that a query names; the first one if it names none of the columns."""
    return given if given in _SORTS else SORT_FIRST


def protocol(name: str, *, tls: bool) -> str:
    """A protocol as people call it."""
    carrier = {"amqp": "AMQP", "websocket": "WebSocket"}.get(name, name)
    return f"{carrier} with TLS" if tls else carrier
