"""Incomplete messages: a bound for the bytes that all links hold, and for the time that each message waits.

Law: a peer that does not finish its messages does not stop other peers. At the bound, the user that holds
most loses its oldest incomplete message. A link whose message gets no more data is closed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Protocol

from amqp_streams import names
from amqp_streams.errors import PeerError


class Payer(Protocol):
    """A connection. `user`: who logged in, None: anonymous."""

    user: str | None

    @property
    def paused(self) -> bool:
        """This node does not read from the peer now."""

    def flush(self) -> None:
        """Write what the engine has to send."""


class Holder(Hashable, Protocol):
    """A link that may hold a part of a message."""

    @property
    def owner(self) -> Payer:
        """The connection of the link."""

    def close(self, error: PeerError | None = None) -> None:
        """Detach, and drop what the link holds."""


@dataclass(slots=True)
class _Held:
    size: int
    heard_ms: int


@dataclass(slots=True)
class _User:
    """`links`: by when their message began."""

    size: int = 0
    links: dict[Holder, _Held] = field(default_factory=dict)


class Unfinished:
    """The unfinished messages of all links, at most `bytes_max` bytes.

    A link whose message gets nothing for `silence_ms` is closed.
    """

    def __init__(self, bytes_max: int, silence_ms: int, clock_ms: Callable[[], int]) -> None:
        self.bytes = 0
        self._bytes_max: Final = bytes_max
        self._silence_ms: Final = silence_ms
        self._clock_ms: Final = clock_ms
        self._users: Final[dict[str | None, _User]] = {}

    def holds(self, link: Holder, size: int) -> None:
        """This link holds this number of bytes now. Closes links, possibly this one, while the sum exceeds
        the bound.
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
            most = max(self._users.values(), key=lambda each: each.size)
            _end(
                next(iter(most.links)),
                "too many large messages are unfinished: send this message again later",
            )

    def expire(self) -> None:
        """Close the links whose message got no more data for too long, unless this node does not read from
        their connections.
        """
        now_ms = self._clock_ms()
        for user in list(self._users.values()):
            for link, held in list(user.links.items()):
                if link.owner.paused:
                    held.heard_ms = now_ms
                elif now_ms - held.heard_ms >= self._silence_ms:
                    _end(link, f"no more data of an unfinished message arrived for {self._silence_ms} ms")


def _end(link: Holder, description: str) -> None:
    link.close(PeerError(names.RESOURCE_LIMIT_EXCEEDED, description))
    link.owner.flush()
