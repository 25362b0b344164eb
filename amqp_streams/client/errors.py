"""What the client raises: one class per level of the protocol, each with the peer's condition where it gave
one.

`AmqpStreamsError` is the root. A `condition` is an AMQP error's symbol (AMQP 1.0 core 2.8.14), e.g.
`amqp:not-found`.
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
"""Conditions of a detach after which a new attach may succeed: the node rebalances, shuts down, or is short
of something.
"""


class EndpointError(AmqpStreamsError):
    """An endpoint failed; `condition`, `description` and `info` are the peer's words, or ours where it said
    nothing.
    """

    def __init__(
        self, condition: str, description: str = "", info: Mapping[str, object] | None = None
    ) -> None:
        self.condition: Final = condition
        self.description: Final = description
        self.info: Final[Mapping[str, object]] = MappingProxyType(dict(info or {}))
        super().__init__(f"{condition}: {description}" if description else condition)


class ConnectError(AmqpStreamsError):
    """No connection could be made: nobody listens, TLS failed, or the peer closed during the handshake."""


class AuthenticationError(ConnectError):
    """The peer refused who we say we are, or offers no mechanism that we have. Not retried."""


class ConnectionLostError(EndpointError):
    """The connection ended and could not be made again within the retry policy, or the peer closed it for
    good.
    """


class NoRoomError(ConnectionLostError):
    """This connection takes no more links: another has to be used.

    For the client itself: it never leaves it.
    """


class SessionError(EndpointError):
    """The peer ended a session with an error."""


class LinkError(EndpointError):
    """The peer detached a producer or a consumer for a reason that a new attach would meet again."""


class LinkRefusedError(LinkError):
    """The peer refused an attach: unknown log or partition, a malformed filter, no permission, an older
    epoch.
    """


class OwnershipLostError(LinkError):
    """Another consumer has the partition, or the link's name, now: take no more from it, and do not attach
    again as you were.

    `condition` is `amqp:link:stolen` where the link was closed for the other, `amqp:resource-locked` where
    the other came while the connection was lost; `info` then may have the epoch that is in force.
    """


class RedirectError(LinkError):
    """The node named another container that has the partition, which could not be reached, or was not to be
    followed.
    """


class RejectedError(EndpointError):
    """This one event was refused for what it is; sending it again would not help."""


class ReleasedError(EndpointError):
    """This one event was not stored, although sent as often as the retry policy allows (disk full, partition
    stopped).
    """


class SendError(AmqpStreamsError):
    """Some events since the last flush were not accepted.

    `failures` names the first of them, each with the event as it was given and what befell it; `count` counts
    all.
    """

    def __init__(self, failures: Sequence[tuple[object, AmqpStreamsError]], count: int) -> None:
        self.failures: Final = tuple(failures)
        self.count: Final = count
        super().__init__(f"{count} events were not accepted; the first: {self.failures[0][1]}")


class SequenceError(AmqpStreamsError, ValueError):
    """Numbers given to events of an idempotent producer do not rise, or it is none."""


class ManagementError(AmqpStreamsError):
    """A `$management` request was answered with a status other than 2xx;

    `status` is that of HTTP (404, 409, …).
    """

    def __init__(self, status: int, description: str) -> None:
        self.status: Final = status
        self.description: Final = description
        super().__init__(f"{status}: {description}" if description else str(status))


class TimedOutError(AmqpStreamsError, TimeoutError):
    """The time given for an operation ran out; the operation was abandoned, its effect is unknown."""


class ClosedError(AmqpStreamsError):
    """This client, producer or consumer was closed before."""
