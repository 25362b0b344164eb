"""The sessions of one connection, which its links share, and how many links fit (AMQP 1.0 core 2.7.1, 2.7.2).

Laws: never more sessions than the peer's channel-max, and never more links in a session than its handle-max.
Proton checks neither, and stops processing without an error. Links are spread evenly. Unread bytes of one
link do not block the other links of its session.
"""

from typing import Final

from amqp_streams import names
from amqp_streams.client.connection.links import Link, ReceiverLink, Session, Unread
from amqp_streams.errors import WireError
from amqp_streams.proton import sessions
from amqp_streams.proton.engine import Engine
from amqp_streams.proton.pointers import Pointer
from amqp_streams.wire.codec import Described, decode

SESSIONS_MAX: Final = 16
"""The most sessions of one connection. While links are fewer, each has its own session."""
SESSION_LINKS_MAX: Final = 64
"""The most links of one session, even if the peer's handle-max is larger: 16 sessions of 64 links are the
1,024 links that a node allows.
"""
SESSION_BYTES_MAX: Final = 64 << 20
"""The most unread bytes of one session. With transfers of FRAME_BYTES_MAX this is a window of 1,024."""
SPARE_LINKS_MAX: Final = 64
"""The links of a connection that are reserved for short requests, which last for one answer."""

_BEGIN: Final = 0x11
_HANDLE_MAX: Final = 4
_HEADER: Final = 8


class Sessions:
    """Gives each new link its session. A session without links stays open for the next link."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self._open: Final[dict[Pointer, Session]] = {}
        self._unread: Final = Unread()
        self.sessions_max = 1
        self.links_max = SESSION_LINKS_MAX

    @property
    def links(self) -> int:
        """How many links all sessions have."""
        return sum(len(session.links) for session in self._open.values())

    @property
    def room(self) -> int:
        """How many links can be added."""
        return max(0, self.sessions_max * self.links_max - self.links)

    def begin(self) -> Session:
        """Begin a session."""
        pointer = self._engine.begin(SESSION_BYTES_MAX)
        session = self._open[pointer] = Session(pointer, self._unread)
        return session

    def limit(self, *, channel_max: int) -> None:
        """Apply the channel-max of the peer's `open`."""
        self.sessions_max = min(SESSIONS_MAX, channel_max + 1)

    def pick(self) -> Session | None:
        """Return the session for a new link; None: no session has space."""
        least = min(self._open.values(), key=lambda session: len(session.links), default=None)
        # An empty session is used again before a new one begins.
        if (least is None or least.links) and len(self._open) < self.sessions_max:
            return self.begin()
        return least if least is not None and len(least.links) < self.links_max else None

    @property
    def spare(self) -> int:
        """How many of all links are reserved for short requests."""
        return min(SPARE_LINKS_MAX, self.sessions_max * self.links_max // 4)

    def ended(self, pointer: Pointer, condition: str) -> Session | None:
        """Record that the peer ended a session. Returns it, or None if it is unknown.

        If the peer ended it because of a limit, no more sessions than the remaining ones are used.
        """
        session = self._open.pop(pointer, None)
        # The peer has a limit that it did not announce: learn it.
        if session is not None and condition == names.RESOURCE_LIMIT_EXCEEDED:
            self.sessions_max = max(1, len(self._open))
        return session

    def free(self, spent: list[Link]) -> None:
        """Free links that both sides have detached."""
        if spent:
            self._engine.free_links([link.pointer for link in spent], SESSION_BYTES_MAX)

    def relieve(self, links: set[Link]) -> None:
        """Move unread bytes out of the windows of shared sessions that fill up.

        The other links of these sessions can then receive.
        """
        for session in {link.session for link in links}:
            # A link alone in its session blocks only itself. Half of the window: earlier than it is full.
            if len(session.links) > 1 and sessions.incoming_bytes(session.pointer) > SESSION_BYTES_MAX // 2:
                for link in session.links:
                    if isinstance(link, ReceiverLink):
                        link.set_aside()


class HandleMax:
    """Reads the peer's handle-max from its first `begin` frame, because Proton does not report it.

    Pass it all received bytes from the beginning until `done`.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._greeted = False
        self.done = False
        self.value = (1 << 32) - 1

    def receive(self, data: bytes | bytearray | memoryview, frame_bytes_max: int) -> None:
        """Examine received bytes. Invalid frames are ignored here, because Proton reports them."""
        received = self._bytes
        received += data
        if not self._greeted and len(received) >= _HEADER:
            self._greeted = True
            # The protocol header precedes the first frame.
            del received[:_HEADER]
        while self._greeted and not self.done and len(received) >= _HEADER:
            size = int.from_bytes(received[:4])
            # Not a valid frame: Proton closes the connection, and the rest need not be searched.
            if not _HEADER <= size <= frame_bytes_max:
                self.done = True
            elif len(received) < size:
                return
            else:
                self._look(bytes(received[4 * received[4] : size]))
                del received[:size]
        if self.done:
            # Nothing is searched any more, so nothing needs to be kept.
            received.clear()

    def _look(self, body: bytes) -> None:
        """Examine one frame. An empty frame is a heartbeat."""
        try:
            performative = decode(body)[0] if body else None
        except WireError:
            self.done = True
            return
        if not isinstance(performative, Described) or performative.descriptor != _BEGIN:
            return
        self.done = True
        fields = performative.value
        if isinstance(fields, list) and len(fields) > _HANDLE_MAX and isinstance(fields[_HANDLE_MAX], int):
            self.value = int(fields[_HANDLE_MAX])
