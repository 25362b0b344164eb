"""The exceptions of the client: one class per level of the protocol. `AmqpStreamsError` is the root.

A `condition` is the symbol of an AMQP error (AMQP 1.0 core 2.8.14), for example `amqp:not-found`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from amqp_streams import names
from amqp_streams.errors import AmqpStreamsError

PASSING: Final = frozenset(
    {
        names.LINK_DETACH_FORCED,
        names.CONNECTION_FORCED,
        names.INTERNAL_ERROR,
        names.RESOURCE_LIMIT_EXCEEDED,
        names.RESOURCE_LOCKED,
        "ended by the peer",
    }
)
"""Conditions of a detach after which a new attach may succeed: the node rebalances, shuts down, or has
reached a limit.
"""


class EndpointError(AmqpStreamsError):
    """A connection, session, link or delivery failed.

    `condition`, `description` and `info` are what the peer sent. If the peer sent nothing, they are the
    client's own words.
    """

    def __init__(
        self, condition: str, description: str = "", info: Mapping[str, object] | None = None
    ) -> None:
        self.condition: Final = condition
        self.description: Final = description
        self.info: Final[Mapping[str, object]] = MappingProxyType(dict(info or {}))
        super().__init__(f"{condition}: {description}" if description else condition)


class ConnectError(AmqpStreamsError):
    """No connection could be opened: the port is closed, TLS failed, or the peer closed during the
    handshake.

    `failures`: with several endpoints, the error of each.
    """

    failures: Sequence["ConnectError"] = ()


class AuthenticationError(ConnectError):
    """The peer refused the login, or offers no mechanism that the client can use. Not retried."""


class ConnectionLostError(EndpointError):
    """The connection ended, and the client could not reconnect within the retry policy."""


class NoRoomError(ConnectionLostError):
    """This connection takes no more links: the link needs another connection.

    Internal: the client never raises it to the program.
    """


class SessionError(EndpointError):
    """The peer ended a session with an error."""


class LinkError(EndpointError):
    """The peer detached a producer or a consumer for a reason that would also end a new attach."""


class LinkRefusedError(LinkError):
    """The peer refused an attach: unknown log or partition, a filter that is not valid, no permission, or an
    older epoch.
    """


class OwnershipLostError(LinkError):
    """Another consumer now owns the partition or uses the link's name. Do not attach again with the same
    arguments.

    `condition` is `amqp:link:stolen` if the node closed this link for the other consumer. It is
    `amqp:resource-locked` if the other consumer attached while the connection was lost; `info` may then
    contain the current epoch.
    """


class RedirectError(LinkError):
    """The node redirected the link to another container, which did not answer or which the client may not
    follow.
    """


class RejectedError(EndpointError):
    """The node refused this one event because of its contents. Sending the event again would not help."""


class ReleasedError(EndpointError):
    """The node did not store this one event, although it was sent as often as the retry policy allows.

    Reasons are, for example, a full disk or a stopped partition.
    """


class SendError(AmqpStreamsError):
    """Some events since the last flush, or of one `send_many`, were not accepted.

    `failures`: the first of them, each with the event as the program passed it and the error. `count`: the
    number of all of them. `indexes`: of `send_many`, the index of each event of `failures` in the sequence
    that the program passed; the events whose index is not there were accepted, if `count` is not larger.
    """

    def __init__(
        self,
        failures: Sequence[tuple[object, AmqpStreamsError]],
        count: int,
        indexes: Sequence[int] = (),
    ) -> None:
        self.failures: Final = tuple(failures)
        self.count: Final = count
        self.indexes: Final = tuple(indexes)
        which = f"the first, with index {self.indexes[0]}" if self.indexes else "the first"
        super().__init__(f"{count} events were not accepted; {which}: {self.failures[0][1]}")


class SequenceError(AmqpStreamsError, ValueError):
    """The sequence numbers do not increase, or the producer has no `producer_id`."""


class ManagementError(AmqpStreamsError):
    """The node answered a `$management` request with a status other than 2xx.

    `status` has the meaning of the HTTP status (404, 409, …).
    """

    def __init__(self, status: int, description: str) -> None:
        self.status: Final = status
        self.description: Final = description
        super().__init__(f"{status}: {description}" if description else str(status))


class TimedOutError(AmqpStreamsError, TimeoutError):
    """The operation took longer than its timeout and was abandoned. Whether it had an effect is unknown."""


class ClosedError(AmqpStreamsError):
    """This client, producer or consumer is already closed."""
