"""What a caller chooses: where a consumer starts, how failures are retried, how TLS is checked.

Plain values.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Literal

from amqp_streams import names
from amqp_streams.wire.codec import Described, Symbol
from amqp_streams.wire.offsets import OFFSET_DIGITS, OFFSET_MAX

_OFFSET_CHARACTERS_MAX: Final = 255
Settle = Literal["auto", "manual", "none"]
"""auto: settled as accepted when the next events are taken; manual: by `settle`; none: the peer settles as it
sends.
"""


class Outcome(Enum):
    """What becomes of a delivery (AMQP 1.0 core 3.4).

    Of a log's events, released and modified ones come again on the link.
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
    """Only events accepted after the attach: the protocol's default."""


@dataclass(frozen=True, slots=True)
class AfterOffset:
    """Events whose offset is greater than `offset`: as `event.offset` gives it, or a number, or a number as
    text.

    Offsets belong to a partition; on a consumer of several partitions the same value is applied to each.

    Raises: ValueError, TypeError for something else.
    """

    offset: str | int

    def __post_init__(self) -> None:
        """Refuse what cannot be an offset."""
        if not isinstance(self.offset, str | int) or isinstance(self.offset, bool):
            message = f"an offset is a number or a text such as event.offset, not {self.offset!r}"
            raise TypeError(message)
        if (
            not self.symbol.isascii()
            or not 0 < len(self.symbol) <= _OFFSET_CHARACTERS_MAX
            or self.symbol.startswith("-")
        ):
            message = (
                f"{self.offset!r} is not an offset: give a number from 0 to {OFFSET_MAX}, or event.offset"
            )
            raise ValueError(message)

    @property
    def symbol(self) -> str:
        """The offset as it goes over the wire: plain numbers have 16 digits there."""
        offset = self.offset
        if isinstance(offset, int):
            return f"{offset:016d}"
        return (
            offset.zfill(OFFSET_DIGITS)
            if offset.isdecimal() and (offset[0] != "0" or len(offset) == 1)
            else offset
        )


@dataclass(frozen=True, slots=True)
class AfterTime:
    """Events stored after this moment, in milliseconds since 1970 UTC (exclusive).

    Raises: TypeError for something else.
    """

    timestamp_ms: int

    def __post_init__(self) -> None:
        """Refuse what cannot be a moment."""
        if not isinstance(self.timestamp_ms, int) or isinstance(self.timestamp_ms, bool):
            message = f"a time is a whole number of milliseconds since 1970 UTC, not {self.timestamp_ms!r}"
            raise TypeError(message)


Start = Latest | AfterOffset | AfterTime
StartAt = Start | Literal["earliest", "latest"]
"""What is taken where a start is asked for."""

LATEST: Final = Latest()
EARLIEST: Final = AfterOffset(names.OFFSET_EARLIEST)


def start_of(given: StartAt) -> Start:
    """The start that `given` means. Raises: ValueError for another text, TypeError for another type."""
    if isinstance(given, Latest | AfterOffset | AfterTime):
        return given
    starts: dict[object, Start] = {"earliest": EARLIEST, "latest": LATEST}
    if isinstance(given, str) and given in starts:
        return starts[given]
    message = (
        f"{given!r} is not a start: give 'earliest', 'latest', AfterOffset(offset) or AfterTime(timestamp_ms)"
    )
    raise (ValueError if isinstance(given, str) else TypeError)(message)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast a lost connection is made again, and how often a released event is sent again.

    The n-th wait (n from 0) is `first_ms * factor**n`, at most `wait_max_ms`, times `jitter()`: a number that
    should lie from 0.5 to 1. `attempts_max` bounds the tries in a row, `elapsed_max_ms` the time from the
    loss. `first_connect` retries the very first connection too; by default `connect` fails when no address
    answers.
    """

    attempts_max: int = 100
    elapsed_max_ms: int = 120_000
    first_ms: int = 50
    wait_max_ms: int = 5_000
    factor: float = 2.0
    first_connect: bool = False
    jitter: Callable[[], float] = field(default=lambda: random.uniform(0.5, 1.0), compare=False)  # noqa: S311 (spreads load, keeps no secret)

    def wait_s(self, attempt: int) -> float:
        """Seconds to wait before try number `attempt` (from 0) is made again."""
        growth: float = self.factor ** min(attempt, 64)
        return min(self.first_ms * growth, self.wait_max_ms) * self.jitter() / 1000


NO_RETRY: Final = RetryPolicy(attempts_max=0)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How `amqps://` and `wss://` are secured. Without a CA file the system's authorities are trusted.

    `certificate_file` and `key_file` are shown to the peer when it asks (SASL EXTERNAL). `verify=False`
    trusts anybody: tests only.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    server_hostname: str | None = None


Token = str | Callable[[], str | Awaitable[str]]
"""An OAuth access token; or who is asked for one before each connection.

What is asked must not block the event loop.
"""


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """How we log in. Without any, the best that the node offers: SCRAM or PLAIN with a user, EXTERNAL with a
    certificate, ANONYMOUS.

    `token`: an OAuth access token instead of a password. `mechanisms`: these and no others, best first.
    `plain_without_tls`: passwords (PLAIN) and tokens may cross a network in the clear; without it they are
    shown over TLS and on this machine only.
    """

    token: Token | None = field(default=None, repr=False)
    mechanisms: tuple[str, ...] | None = None
    plain_without_tls: bool = False


def sql_filter(text: str) -> Described:
    """A filter for `Client.consumer(filters={"any name": …})`: only events of which the condition is true,
    e.g. `kind = 'alarm'`.

    The condition is SQL as in AMQP Filter Expressions 1.0, 6: unqualified names are application properties,
    `p.subject` is a field of the properties section, `m.event-streams-group-key` a message annotation. One
    that cannot be read refuses the link.
    """
    return Described(Symbol(names.FILTEX_SQL), text)
