"""The connections of a node, as `$management` reports them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from amqp_streams import names
from amqp_streams.client.management.cursors import listed


@dataclass(frozen=True, slots=True)
class Held:
    """Why a connection or a link does not move.

    `reason`: a word for programs; `detail`: a sentence for people. `links`: how many links it holds; 0: the
    connection itself.
    """

    reason: str
    detail: str
    links: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Events and their bytes. `in`: the node stored them; `out`: the node sent them."""

    events_in: float = 0
    bytes_in: float = 0
    events_out: float = 0
    bytes_out: float = 0


@dataclass(frozen=True, slots=True)
class AttachedLink:
    """A link of a connection. A value is None if it does not apply.

    `role`: `producer`, `consumer`, or what else the link is for. `partitions`: the first ones; there are
    `partition_count`. `lag`: how many events wait for a consumer.
    """

    name: str
    role: str
    address: str | None = None
    log: str | None = None
    partitions: tuple[str, ...] = ()
    partition_count: int = 0
    group: str | None = None
    epoch: int | None = None
    lag: int | None = None
    credit: int = 0
    unsettled: int = 0
    events: int = 0
    bytes: int = 0
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection of a node at one moment.

    `name`: for requests about it. `peer`: the address of the client. `protocol`: `amqp` or `websocket`.
    `state`: `login`, `opening`, `open` or `closing`. `since_ms`: when it began, since 1970. `own`: the
    request came over it. `unread_bytes`: written, and not taken by the client's side. `total`: since it
    began; `rate`: in each second, as an average of the last 5 to 10 seconds. `links`: how many;
    `attached`: the links themselves, only in the description of one connection.
    """

    name: str
    user: str | None = None
    mechanism: str | None = None
    peer: str = ""
    container: str | None = None
    protocol: str = ""
    tls: bool = False
    state: str = ""
    since_ms: int | None = None
    own: bool = False
    links: int = 0
    producers: int = 0
    consumers: int = 0
    credit: int = 0
    unsettled: int = 0
    unread_bytes: int = 0
    total: Traffic = Traffic()
    rate: Traffic = Traffic()
    held: tuple[Held, ...] = ()
    attached: tuple[AttachedLink, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionPage:
    """A part of the connections that the user may see. `total`: how many there are. `next`: where the next
    page begins; None: this is the last one.
    """

    connections: tuple[ConnectionInfo, ...]
    total: int
    next: int | None = None


def query_body(search: str | None, sort: str | None) -> dict[str, object]:
    """Return the body of a request for a list."""
    given = {names.CONNECTION_SEARCH: search, names.CONNECTION_SORT: sort}
    return {key: value for key, value in given.items() if value}


def connection_page(answer: Mapping[str, object]) -> ConnectionPage:
    """Convert the answer to a request for a list."""
    found = tuple(map(connection_info, listed(answer, names.CONNECTIONS)))
    total, following = answer.get(names.CONNECTIONS_TOTAL), answer.get(names.QUERY_NEXT)
    return ConnectionPage(
        found,
        total if isinstance(total, int) else len(found),
        # An empty page must end the list, whatever the node says about the next page.
        following if isinstance(following, int) and found else None,
    )


def connection_info(entry: Mapping[str, object]) -> ConnectionInfo:
    """Convert the entry of a connection."""
    return ConnectionInfo(
        str(entry.get(names.NAME)),
        user=_text(entry.get(names.CURSOR_USER)),
        mechanism=_text(entry.get(names.CONNECTION_MECHANISM)),
        peer=_text(entry.get(names.CONNECTION_PEER)) or "",
        container=_text(entry.get(names.CURSOR_CONTAINER)),
        protocol=_text(entry.get(names.CONNECTION_PROTOCOL)) or "",
        tls=entry.get(names.CONNECTION_TLS) is True,
        state=_text(entry.get(names.INFO_STATE)) or "",
        since_ms=_number(entry.get(names.CONNECTION_SINCE)),
        own=entry.get(names.CONNECTION_OWN) is True,
        links=_number(entry.get(names.CONNECTION_LINKS)) or 0,
        producers=_number(entry.get(names.CONNECTION_PRODUCERS)) or 0,
        consumers=_number(entry.get(names.CONNECTION_CONSUMERS)) or 0,
        credit=_number(entry.get(names.LINK_CREDIT)) or 0,
        unsettled=_number(entry.get(names.LINK_UNSETTLED)) or 0,
        unread_bytes=_number(entry.get(names.CONNECTION_UNREAD)) or 0,
        total=_traffic(entry, ""),
        rate=_traffic(entry, names.TRAFFIC_RATE),
        held=tuple(map(_held, listed(entry, names.CONNECTION_HELD))),
        attached=tuple(map(_link, listed(entry, names.CONNECTION_ATTACHED))),
        details=dict(entry),
    )


def _link(entry: Mapping[str, object]) -> AttachedLink:
    partitions, held = entry.get(names.INFO_PARTITIONS), entry.get(names.CONNECTION_HELD)
    return AttachedLink(
        str(entry.get(names.NAME)),
        str(entry.get(names.LINK_ROLE)),
        address=_text(entry.get(names.LINK_ADDRESS)),
        log=_text(entry.get(names.INFO_LOG)),
        partitions=tuple(map(str, partitions)) if isinstance(partitions, list) else (),
        partition_count=_number(entry.get(names.LINK_PARTITION_COUNT)) or 0,
        group=_text(entry.get(names.CURSOR_GROUP)),
        epoch=_number(entry.get(names.CURSOR_EPOCH)),
        lag=_number(entry.get(names.CURSOR_LAG)),
        credit=_number(entry.get(names.LINK_CREDIT)) or 0,
        unsettled=_number(entry.get(names.LINK_UNSETTLED)) or 0,
        events=_number(entry.get(names.LINK_EVENTS)) or 0,
        bytes=_number(entry.get(names.INFO_BYTES)) or 0,
        held=_held(held) if isinstance(held, dict) else None,
    )


def _held(entry: Mapping[str, object]) -> Held:
    return Held(
        str(entry.get(names.HELD_REASON)),
        str(entry.get(names.HELD_DETAIL)),
        _number(entry.get(names.HELD_LINKS)) or 0,
    )


def _traffic(entry: Mapping[str, object], suffix: str) -> Traffic:
    keys = (
        names.TRAFFIC_EVENTS_IN,
        names.TRAFFIC_BYTES_IN,
        names.TRAFFIC_EVENTS_OUT,
        names.TRAFFIC_BYTES_OUT,
    )
    values = (entry.get(key + suffix) for key in keys)
    return Traffic(*(value if isinstance(value, int | float) else 0 for value in values))


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
