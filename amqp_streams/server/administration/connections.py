"""Requests about the connections of the node: list, describe, close.

Spec: AMQP Management 1.0 (working draft).

Laws: a user sees and closes its own connections; those of others need the right `manage` on all logs. A user
without it gets the same answer for a connection that exists and for one that does not. A list of any number
of connections is computed in steps.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from typing import Final, Protocol, TypeAlias, cast

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node.requests import Operations, RequestSteps, listed
from amqp_streams.policy import Right
from amqp_streams.server.administration import describing
from amqp_streams.server.administration.describing import Described, attached, container, rates, totals
from amqp_streams.streams import info, management
from amqp_streams.streams.access import ANY_LOG, Permissions
from amqp_streams.streams.management import Answer, Request, RequestError
from amqp_streams.streams.steps import Steps
from amqp_streams.wire.types import Value

LOOKS_A_STEP: Final = 256
"""How many connections and links a step compares with a search text, or orders."""
LINKS_A_STEP: Final = 20
"""How many links a step describes: this takes about half a millisecond."""
TEXT_MAX: Final = 200
"""The most characters of a search text, and of the reason for a close."""

_Key: TypeAlias = Callable[["Closable", int], float | str]


class Closable(Described, Protocol):
    """A connection that an operator can close."""

    def shut(self, error: PeerError) -> None:
        """Close the connection with this error."""


class Service(describing.Service, Protocol):
    """What the requests need of the server."""

    @property
    def connections(self) -> Collection[Closable]:
        """The open connections, oldest first."""


_Field: TypeAlias = tuple[str, int]
_COUNTED: Final[Sequence[_Field]] = (
    (names.TRAFFIC_EVENTS_IN, 0),
    (names.TRAFFIC_BYTES_IN, 1),
    (names.TRAFFIC_EVENTS_OUT, 2),
    (names.TRAFFIC_BYTES_OUT, 3),
)


def _total(index: int) -> _Key:
    return lambda connection, _now_ms: -totals(connection)[index]


def _rate(index: int) -> _Key:
    return lambda connection, now_ms: -rates(connection, totals(connection), now_ms)[index]


SORTS: Final[Mapping[str, _Key]] = {
    names.CONNECTION_SINCE: lambda connection, _: connection.since_ms,
    names.CURSOR_USER: lambda connection, _: connection.user or "",
    names.CONNECTION_PEER: lambda connection, _: connection.channel.peer,
    names.CURSOR_CONTAINER: lambda connection, _: container(connection) or "",
    names.CONNECTION_LINKS: lambda connection, _: -len(attached(connection)),
    names.CONNECTION_UNREAD: lambda connection, _: -connection.channel.pending(),
    **{name: _total(index) for name, index in _COUNTED},
    **{name + names.TRAFFIC_RATE: _rate(index) for name, index in _COUNTED},
}
"""The orders of a list: texts and times ascending, numbers descending."""


class ConnectionRequests:
    """Operations on connections. A name is this run of the node, and the number of the connection."""

    def __init__(self, service: Service) -> None:
        self._service: Final = service
        # A name from before a restart must not close another connection.
        self._run: Final = secrets.token_hex(2)

    def operations(self) -> Operations:
        """The operations by name."""
        return {"READ": self.read, "QUERY": self.query, "DELETE": self.close}

    def name(self, connection: Described) -> str:
        """The name of a connection in requests."""
        return f"{self._run}-{connection.number}"

    def query(self, request: Request) -> RequestSteps:
        """The connections that the user may see, or those of them with a text, in an order."""
        search = _text(request, names.CONNECTION_SEARCH).casefold()
        order = _order(request)
        found = yield from self._visible(request.permissions, search)
        if order is not None:
            found = yield from _ordered(found, order, self._service.monotonic_ms())
        answer = yield from listed(
            names.CONNECTIONS,
            found,
            request,
            width=lambda connection: len(attached(connection)) + 2,
            describe=lambda connection: self._summary(connection, request),
        )
        body = cast("dict[Value, Value]", answer.body)
        return replace(answer, body=body | {names.CONNECTIONS_TOTAL: len(found)})

    def read(self, request: Request) -> Steps[Answer]:
        """One connection with its links."""
        connection = self._found(request)
        described: list[Value] = []
        since = 0
        for link in tuple(attached(connection)):
            if link.alive:  # it may have ended since the first step
                one = yield from describing.link_map(link, self._service)
                if one:
                    described.append(info.encoded(one))
            since += 1
            if since >= LINKS_A_STEP:
                since = 0
                yield
        body = yield from self._summary(connection, request)
        return Answer(management.OK, "OK", body | {names.CONNECTION_ATTACHED: described})

    def close(self, request: Request) -> Answer:
        """Close a connection with the condition `amqp:connection:forced`, which names the user."""
        connection = self._found(request)
        if connection.number == request.connection:
            raise RequestError(
                management.CONFLICT,
                f"{request.name!r} is the connection of this request: close it in its client",
            )
        reason = _text(request, names.CONNECTION_REASON)
        user = request.permissions.identity.user
        by = "an anonymous user" if user is None else f"user {user[:TEXT_MAX]!r}"
        audit = {
            "peer": connection.channel.peer,
            "container": container(connection) or "",
            "owner": connection.user or "",
        }
        words = f"closed by {by}" + (f": {reason}" if reason else "")
        connection.shut(PeerError(names.CONNECTION_FORCED, words))
        return Answer(management.NO_CONTENT, "closed", {}, audit | ({"reason": reason} if reason else {}))

    def _visible(self, permissions: Permissions, search: str) -> Steps[Sequence[Closable]]:
        found: list[Closable] = []
        since = 0
        administers = permissions.administers
        for connection in tuple(self._service.connections):
            since += 1
            if administers or _owns(permissions, connection):
                matches = not search or _has(search, self._texts(connection))
                # Links may begin and end between two steps.
                for link in () if matches else tuple(attached(connection)):
                    since += 1
                    if _has(
                        search, (describing.name(link), describing.address(link), describing.group(link))
                    ):
                        matches = True
                        break
                    if since >= LOOKS_A_STEP:
                        since = 0
                        yield
                if matches:
                    found.append(connection)
            if since >= LOOKS_A_STEP:
                since = 0
                yield
        yield
        return found

    def _found(self, request: Request) -> Closable:
        run, _, number = request.name.partition("-")
        permissions = request.permissions
        wanted = int(number) if run == self._run and number.isdecimal() and len(number) < 20 else None
        administers = permissions.administers
        for connection in self._service.connections:
            if connection.number == wanted and (administers or _owns(permissions, connection)):
                return connection
        if not administers:
            raise permissions.refusal(Right.MANAGE, ANY_LOG)
        description = f"no connection named {request.name[:64]!r}: it may have ended"
        raise RequestError(management.NOT_FOUND, description)

    def _summary(self, connection: Closable, request: Request) -> Steps[dict[Value, Value]]:
        own = connection.number == request.connection
        return (yield from describing.summary(connection, self.name(connection), self._service, own=own))

    def _texts(self, connection: Closable) -> Iterable[str | None]:
        """What a search compares of a connection itself."""
        return (self.name(connection), connection.user, connection.channel.peer, container(connection))


def _owns(permissions: Permissions, connection: Described) -> bool:
    """Whether a connection belongs to a user, who may see and close it without a right."""
    user = permissions.identity.user
    # All anonymous clients would be one user, so that each could close the others.
    return user is not None and connection.user == user


def _has(search: str, texts: Iterable[str | None]) -> bool:
    return any(text is not None and search in text.casefold() for text in texts)


def _ordered(found: Sequence[Closable], key: _Key, now_ms: int) -> Steps[Sequence[Closable]]:
    """Sort in steps: pieces first, then all pieces together."""
    pieces: list[list[tuple[float | str, int]]] = []
    keyed: list[tuple[float | str, int]] = []
    since = 0
    for index, each in enumerate(found):
        keyed.append((key(each, now_ms), index))
        # A key may add up all links of its connection.
        since += 1 + len(attached(each))
        if since >= LOOKS_A_STEP:
            since = 0
            yield
        if len(keyed) >= LOOKS_A_STEP:
            pieces.append(sorted(cast("list[tuple[str, int]]", keyed)))
            keyed = []
            yield
    pieces.append(sorted(cast("list[tuple[str, int]]", keyed)))
    result: list[Closable] = []
    for _, index in merge(*cast("list[list[tuple[str, int]]]", pieces)):
        result.append(found[index])
        if len(result) % LOOKS_A_STEP == 0:
            yield
    return result


def _order(request: Request) -> _Key | None:
    name = request.body.get(names.CONNECTION_SORT)
    if name is None:
        return None
    key = SORTS.get(str(name))
    if key is None:
        description = f"{names.CONNECTION_SORT!r} must be one of {', '.join(SORTS)} (got {str(name)[:64]!r})"
        raise RequestError(management.BAD_REQUEST, description)
    return key


def _text(request: Request, name: str) -> str:
    text = request.body.get(name)
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > TEXT_MAX or not text.isprintable():
        description = f"{name!r} must be a text of at most {TEXT_MAX} printable characters"
        raise RequestError(management.BAD_REQUEST, description)
    return str(text)
