"""Links that carry no events: attaches that are not answered yet, and receivers without a source.

Spec: AMQP 2.6.3; Event Streams 4.5.1.

A pending attach is open at the client only: the node sends its attach frame after it granted or denied the
request. The link counts toward the limits, and ends with the client's detach, session or connection like
other links.
"""

from collections.abc import Callable

from amqp_streams.errors import PeerError
from amqp_streams.proton import links
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import Link, OutgoingLink, Owner, Service
from amqp_streams.streams.attach import Grant, Kept, Pending

Answer = Callable[[Grant | PeerError], None]
Detach = Callable[[PeerError | None], None]


class PendingLink(Link[Pending]):
    """An attach that is not answered yet.

    `answer` replaces this link by the real one, or refuses the attach. It is called at most once.
    """

    __slots__ = ("_answer",)

    def __init__(
        self, service: Service, owner: Owner, pointer: Pointer, grant: Pending, answer: Answer
    ) -> None:
        super().__init__(service, owner, pointer, grant.request.link, grant)
        self._answer = answer

    def waits_on(self, grant: Pending) -> bool:
        """Wait for the next decision. Returns False if the client has left."""
        if not self.alive or self.closing:
            return False
        self.grant = grant
        return True

    def answer(self, outcome: Grant | PeerError) -> bool:
        """Grant or deny the attach.

        Returns False if the client has left, in which case the grant must be returned to the node.
        """
        if not self.alive or self.closing:
            return False
        self.alive = False
        self._answer(outcome)
        return True

    def close(self, error: PeerError | None = None) -> None:
        """Refuse the attach for a reason outside the node's decision, for example a shutdown."""
        if self.alive and not self.closing:
            self.closing = True
            links.refuse(self.pointer, error)


class KeptLink(OutgoingLink[Kept]):
    """Reports the source that is kept under the link's name, and sends nothing. Spec: AMQP 2.6.3."""

    __slots__ = ("_detach",)

    def unsubscribe(self, detach: Detach) -> None:
        """The client has closed the link: remove the cursor, then answer with `detach`."""
        self.closing = True
        self._detach = detach
        self.service.effects.unsubscribe(self)

    def ended(self, error: PeerError | None) -> None:
        """Answer the client's close: the cursor is removed from the disk, or with `error` perhaps not."""
        if self.alive:
            self._detach(error)

    def pump(self) -> None:
        """Answer a drain. Credit has no other use on this link."""
        if self.alive and not self.closing:
            self.answer_drain()
