"""Links that carry no events: attaches that are not answered yet, and receivers without a source. Spec: AMQP
2.6.3; Event Streams 4.5.1.

A pending attach is open at the peer and not here: no attach is sent until it is granted or denied. It counts
as a link, and ends with its peer's detach, session or connection like any other.
"""

from collections.abc import Callable

from amqp_streams.errors import PeerError
from amqp_streams.proton import links
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import Link, OutgoingLink, Owner, Service
from amqp_streams.streams.attach import Consuming, Kept, Pending

Answer = Callable[[Consuming | PeerError], None]


class PendingLink(Link[Pending]):
    """An attach that waits for its answer.

    `answer` puts a link in its place, or refuses it; called once at most.
    """

    __slots__ = ("_answer",)

    def __init__(
        self, service: Service, owner: Owner, pointer: Pointer, grant: Pending, answer: Answer
    ) -> None:
        super().__init__(service, owner, pointer, grant.request.link, grant)
        self._answer = answer

    def answer(self, outcome: Consuming | PeerError) -> bool:
        """Grant or deny the attach. False: the peer has left, and the grant must be returned."""
        if not self.alive or self.closing:
            return False
        self.alive = False
        self._answer(outcome)
        return True

    def close(self, error: PeerError | None = None) -> None:
        """Refuse the attach, for a reason outside the node."""
        if self.alive and not self.closing:
            self.closing = True
            links.refuse(self.pointer, error)


class KeptLink(OutgoingLink[Kept]):
    """Reports which source is kept under its name, and sends nothing."""

    __slots__ = ()

    def pump(self) -> None:
        """Credit has no use here, but a drain is answered."""
        if self.alive and not self.closing:
            self.answer_drain()
