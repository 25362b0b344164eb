"""Options of clients, producers and consumers: start, outcome, retry policy, TLS and SASL. Plain values."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Literal

from amqp_streams import names
from amqp_streams.wire.codec import Described, Symbol
from amqp_streams.wire.offsets import OFFSET_DIGITS, OFFSET_MAX

_SHOWN_MAX: Final = 80
"""Characters of a wrong value that a message repeats."""
Settle = Literal["auto", "manual", "none"]
"""When a consumer settles events. auto: as accepted, when the program takes the next events; manual: when the
program calls `settle`; none: the node settles each event when it sends it.
"""


class Outcome(Enum):
    """The outcome of a delivery (AMQP 1.0 core 3.4).

    The node sends released and modified events of a log again on the same link.
    """

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"


ACCEPTED: Final = Outcome.ACCEPTED
REJECTED: Final = Outcome.REJECTED
RELEASED: Final = Outcome.RELEASED
MODIFIED: Final = Outcome.MODIFIED


@dataclass(frozen=True, slots=True)
class Latest:
    """Only events that are accepted after the attach. This is the protocol's default."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """All events of the log: the stored ones and the later ones."""


@dataclass(frozen=True, slots=True)
class AfterOffset:
    """Events whose offset is greater than `offset`: an int, such as `event.offset`.

    Offsets belong to one partition. A consumer of several partitions applies the same offset to each of them.

    Raises:
        TypeError if `offset` is not an int; ValueError if no event can have this offset.
    """

    offset: int

    def __post_init__(self) -> None:
        offset: object = self.offset
        if not isinstance(offset, int) or isinstance(offset, bool):
            number = _number(offset)
            given = "a number such as event.offset" if number is None else f"AfterOffset({number})"
            message = f"an offset is a number, not {_shown(offset)}: give {given}"
            raise TypeError(message)
        if not 0 <= offset <= OFFSET_MAX:
            message = f"{_shown(offset)} is not an offset: give a number from 0 to {OFFSET_MAX}"
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class AfterTime:
    """Events stored after this time in milliseconds since 1970 UTC (exclusive).

    Raises:
        TypeError if `timestamp_ms` is not an int.
    """

    timestamp_ms: int

    def __post_init__(self) -> None:
        if not isinstance(self.timestamp_ms, int) or isinstance(self.timestamp_ms, bool):
            message = f"a time is a whole number of milliseconds since 1970 UTC, not {self.timestamp_ms!r}"
            raise TypeError(message)


Start = Earliest | Latest | AfterOffset | AfterTime
StartAt = Start | Literal["earliest", "latest"]
"""The values that are valid as `start` of a consumer."""

LATEST: Final = Latest()
EARLIEST: Final = Earliest()


def start_of(given: StartAt) -> Start:
    """Convert `given` to a start.

    An offset alone is refused: it does not show whether its event is included.

    Raises:
        ValueError if the text is not a start; TypeError if the type is wrong.
    """
    if isinstance(given, Start):
        return given
    starts: dict[object, Start] = {"earliest": EARLIEST, "latest": LATEST}
    if isinstance(given, str) and given in starts:
        return starts[given]
    after = "AfterOffset(offset)" if (number := _number(given)) is None else f"AfterOffset({number})"
    message = f"{_shown(given)} is not a start: give 'earliest', 'latest', {after} or AfterTime(timestamp_ms)"
    raise (ValueError if isinstance(given, str) else TypeError)(message)


def _number(value: object) -> int | None:
    """The offset that an int or a text of digits stands for; None for any other value."""
    if isinstance(value, str) and len(value) <= OFFSET_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= OFFSET_MAX:
        return value
    return None


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_MAX]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which waits the client reconnects and sends released events again.

    The wait before attempt n (from 0) is `first_ms * factor**n`, at most `wait_max_ms`, times `jitter()`,
    which returns a number from 0.5 to 1. The client gives up after `attempts_max` failed attempts in a row,
    or when `elapsed_max_ms` have passed since the loss.

    `first_connect`: also retry the first connection. By default `connect` fails if no address answers.
    """

    attempts_max: int = 100
    elapsed_max_ms: int = 120_000
    first_ms: int = 50
    wait_max_ms: int = 5_000
    factor: float = 2.0
    first_connect: bool = False
    # Jitter spreads the load and keeps no secret.
    jitter: Callable[[], float] = field(default=lambda: random.uniform(0.5, 1.0), compare=False)  # noqa: S311

    def wait_s(self, attempt: int) -> float:
        """Return the wait in seconds before attempt number `attempt` (from 0)."""
        # The exponent is limited because a large power of a float raises OverflowError.
        growth: float = self.factor ** min(attempt, 64)
        return min(self.first_ms * growth, self.wait_max_ms) * self.jitter() / 1000


NO_RETRY: Final = RetryPolicy(attempts_max=0)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How `amqps://` and `wss://` are secured.

    Without `ca_file` the client trusts the system's certificate authorities.

    `certificate_file` and `key_file`: the client certificate, sent if the peer requests one (SASL EXTERNAL).
    `server_hostname`: the name to expect in the peer's certificate instead of the host of the URL.
    `verify=False` accepts every peer: for tests only.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    server_hostname: str | None = None


Token = str | Callable[[], str | Awaitable[str]]
"""An OAuth access token, or a function that returns one and is called before each connection attempt.

The function must not block the event loop.
"""


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """How the client logs in.

    By default the client uses the best mechanism that the node offers: SCRAM or PLAIN with a user, EXTERNAL
    with a client certificate, otherwise ANONYMOUS.

    `token`: an OAuth access token instead of a password. `mechanisms`: use only these mechanisms, best first.
    `plain_without_tls`: allow passwords (PLAIN) and tokens on connections without TLS. By default the client
    sends them without TLS only to its own machine.
    """

    token: Token | None = field(default=None, repr=False)
    mechanisms: tuple[str, ...] | None = None
    plain_without_tls: bool = False


def sql_filter(text: str) -> Described:
    """Return a filter for `Client.consumer(filters={"any name": …})`.

    Only events for which the condition is true.

    An example is `kind = 'alarm'`. The condition is SQL as in AMQP Filter Expressions 1.0, section 6: a name
    without prefix is an application property, `p.subject` is a field of the properties section,
    `m.event-streams-group-key` is a message annotation. The node refuses the link if the condition is not
    valid.
    """
    return Described(Symbol(names.FILTEX_SQL), text)
