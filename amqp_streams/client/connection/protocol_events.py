"""The protocol events of a connection: values, in the order in which they occurred."""

from dataclasses import dataclass, field

from amqp_streams.client.connection.links import Link, SenderLink
from amqp_streams.client.errors import EndpointError
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton.sending import Sendable


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer answered the `open`: links may be attached.

    `event_streams`: it supports Event Streams (section 3.1). `store`: the identity of its store; None: it
    does not tell it.
    """

    container: str
    event_streams: bool
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended with all its links."""

    error: AmqpStreamsError


@dataclass(frozen=True, slots=True)
class Attached:
    """The peer accepted an attach."""

    link: Link


@dataclass(frozen=True, slots=True)
class Detached:
    """The peer refused or ended a link. Not reported for links that the client closed."""

    link: Link
    error: EndpointError


@dataclass(frozen=True, slots=True)
class Changed:
    """Links with new messages (receivers) or new credit (senders)."""

    links: frozenset[Link]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of events of one link, in the order of arrival.

    `accepted`, and `refused` with the errors.
    """

    link: SenderLink
    accepted: list[Sendable] = field(default_factory=list)
    refused: list[tuple[Sendable, EndpointError]] = field(default_factory=list)


ProtocolEvent = Opened | Closed | Attached | Detached | Changed | Outcomes
