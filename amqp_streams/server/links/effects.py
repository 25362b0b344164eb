"""What the node wants done about links, done: attaches answered, links closed, consumers sent away. Spec:
Event Streams 4.5; AMQP 2.6.1.

Law: the node's effects are carried out in order and before anything else is sent, so that an old owner's link
has ended when its successor's first event leaves. They concern links of any connection; those touched are
written out at the end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, assert_never

import structlog

from amqp_streams.errors import PeerError
from amqp_streams.node import Node
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.link import AnyLink, Owner
from amqp_streams.server.links.pending import PendingLink
from amqp_streams.streams.attach import Closed, Consuming, Denied, Effect, Grant, Granted, Leave, Pending

log = structlog.get_logger("amqp_streams")


class Effects:
    """Carries the node's effects out. `now_ms`: a clock that never goes back."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._node: Final = node
        self._loop: Final = loop
        self._now_ms: Final = now_ms
        self.moves: Counter[tuple[str, str]] = Counter()
        """How many links were asked to leave, by log and group."""
        self._links: dict[Grant | Pending, AnyLink] = {}
        self._scheduled = False
        self._at_work = False

    # -- which link a grant belongs to

    def attached(self, link: AnyLink) -> None:
        """Register a link: effects may concern it."""
        self._links[link.grant] = link

    def detached(self, link: AnyLink, *, closed: bool = False) -> None:
        """A link is gone, or will send nothing more: the node forgets it.

        What follows is carried out when somebody asks. Twice is once.
        """
        if self._links.pop(link.grant, None) is not None:
            self._node.detach(link.grant, self._now_ms(), closed=closed)

    def consumer(self, grant: Consuming) -> ConsumerLink | None:
        """The link that was granted this; None: it is gone, or will send nothing more."""
        link = self._links.get(grant)
        return link if isinstance(link, ConsumerLink) else None

    # -- carrying out

    def soon(self) -> None:
        """Carry out the effects at the end of this loop iteration, for callers that are in the middle of
        other work.
        """
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._in_turn)

    def _in_turn(self) -> None:
        self._scheduled = False
        self.carry_out()

    def carry_out(self, by: Owner | None = None) -> None:
        """Do all that the node wants done, and what that brings.

        `by`: the connection whose attach brought it.
        """
        if self._at_work:
            return  # whoever called is part of it; the loop below takes what has come
        self._at_work = True
        touched: set[Owner] = set()
        try:
            while effects := self._node.take_effects():
                for effect in effects:
                    try:
                        link = self._perform(effect, by)
                    except Exception:  # the other effects belong to other links and must still be carried out
                        log.exception("effect_failed", effect=type(effect).__name__)
                        continue
                    if link is not None:
                        touched.add(link.owner)
        finally:
            self._at_work = False
        for owner in touched:
            owner.flush()

    def _perform(self, effect: Effect, by: Owner | None) -> AnyLink | None:
        """Carry out one; the link that it was about, if that is still there."""
        match effect:
            case Granted(pending, grant):
                return self._answer(pending, grant)
            case Denied(pending, error):
                return self._answer(pending, error)
            case Closed(grant, error):
                link = self._links.pop(grant, None)  # the node has forgotten it
                if link is not None:
                    link.evict(error, by)
                return link
            case Leave(grant, error, within_ms):
                link = self.consumer(grant)
                if link is not None:
                    self.moves[grant.log.name, grant.group or ""] += 1
                    link.leave(error, within_ms)
                return link
            case _:
                assert_never(effect)

    def _answer(self, pending: Pending, outcome: Consuming | PeerError) -> AnyLink | None:
        link = self._links.pop(pending, None)
        if isinstance(link, PendingLink) and link.answer(outcome):
            return link
        if isinstance(outcome, Consuming):  # its peer went while it was being granted
            self._node.detach(outcome, self._now_ms())
        return None
