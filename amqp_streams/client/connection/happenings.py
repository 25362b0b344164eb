"""What a connection's protocol tells: values, in the order they happened."""

from dataclasses import dataclass, field

from amqp_streams.client.connection.links import Link, SenderLink
from amqp_streams.client.errors import EndpointError
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton.sending import Sendable


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer answered our open: links may be attached. `event_streams`: it offers the extensions (3.1)."""

    container: str
    event_streams: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over; every link with it."""

    error: AmqpStreamsError


@dataclass(frozen=True, slots=True)
class Attached:
    """The peer took the attach."""

    link: Link


@dataclass(frozen=True, slots=True)
class Detached:
    """The peer refused or ended a link. Not told for links that we closed."""

    link: Link
    error: EndpointError


@dataclass(frozen=True, slots=True)
class Changed:
    """Links with something new: to take (receivers), or credit (senders)."""

    links: frozenset[Link]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of events, in the order told: `accepted`, and `refused` with why."""

    link: SenderLink
    accepted: list[Sendable] = field(default_factory=list)
    refused: list[tuple[Sendable, EndpointError]] = field(default_factory=list)


Happening = Opened | Closed | Attached | Detached | Changed | Outcomes
