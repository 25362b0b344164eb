"""Incomplete messages.

A limit for the bytes that all links hold, and for the time that each message may take.

Law: a client that does not finish its messages does not stop others. At the limit, the user that holds the
most bytes loses its oldest incomplete message. A link whose message gets no more data is closed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Protocol

from amqp_streams import names
from amqp_streams.errors import PeerError


class Payer(Protocol):
    """A connection. `user`: the name that the client logged in as; None: anonymous."""

    user: str | None

    @property
    def paused(self) -> bool:
        """Whether the node has paused reading from this client."""

    def flush(self) -> None:
        """Write what Proton has to send."""


class Holder(Hashable, Protocol):
    """A link that may hold a part of a message."""

    @property
    def owner(self) -> Payer:
        """The connection of the link."""

    def close(self, error: PeerError | None = None) -> None:
        """Detach, and drop the incomplete message."""


@dataclass(slots=True)
class _Held:
    size: int
    heard_ms: int


@dataclass(slots=True)
class _User:
    """What one user holds. `links` is ordered by the time at which the message began."""

    size: int = 0
    links: dict[Holder, _Held] = field(default_factory=dict)


class Unfinished:
    """The incomplete messages of all links, at most `bytes_max` bytes.

    A link whose message gets no data for `silence_ms` is closed. `clock_ms`: a monotonic clock.
    """

    def __init__(self, bytes_max: int, silence_ms: int, clock_ms: Callable[[], int]) -> None:
        self.bytes = 0
        self._bytes_max: Final = bytes_max
        self._silence_ms: Final = silence_ms
        self._clock_ms: Final = clock_ms
        self._users: Final[dict[str | None, _User]] = {}

    def holds(self, link: Holder, size: int) -> None:
        """Set how many bytes this link holds.

        While the sum exceeds the limit, links are closed, possibly this one.
        """
        user = self._users.setdefault(link.owner.user, _User())
        held = user.links.get(link)
        change = size - (0 if held is None else held.size)
        self.bytes += change
        user.size += change
        if not size:
            user.links.pop(link, None)
            if not user.links:
                del self._users[link.owner.user]
        elif held is None:
            user.links[link] = _Held(size, self._clock_ms())
        else:
            held.size, held.heard_ms = size, self._clock_ms()
        while self.bytes > self._bytes_max:
            # The user with the most bytes, not the one that came last: an attacker pays with its own
            # messages.
            most = max(self._users.values(), key=lambda each: each.size)
            _end(
                next(iter(most.links)),
                "too many large messages are unfinished: send this message again later",
            )

    def expire(self) -> None:
        """Close the links whose message got no data for `silence_ms`.

        Time during which the node itself does not read from the connection does not count.
        """
        now_ms = self._clock_ms()
        # Copies: closing a link changes both dictionaries.
        for user in list(self._users.values()):
            for link, held in list(user.links.items()):
                if link.owner.paused:
                    held.heard_ms = now_ms
                elif now_ms - held.heard_ms >= self._silence_ms:
                    _end(link, f"no more data of an unfinished message arrived for {self._silence_ms} ms")


def _end(link: Holder, description: str) -> None:
    link.close(PeerError(names.RESOURCE_LIMIT_EXCEEDED, description))
    link.owner.flush()
