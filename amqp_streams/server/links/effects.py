"""Carries out what the node decided about links: answers attaches, closes links, makes consumers hand over.

Spec: Event Streams 4.5; AMQP 2.6.1.

Law: effects are carried out in order and before anything else is sent, so that the old owner's link has ended
before the new owner's first event is sent. Effects may concern links of any connection. The connections
concerned are flushed at the end.
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
from amqp_streams.server.links.pending import KeptLink, PendingLink
from amqp_streams.streams.attach import (
    Closed,
    Consuming,
    Decided,
    Denied,
    Effect,
    Ended,
    Grant,
    Granted,
    Leave,
    Pending,
)

log = structlog.get_logger("amqp_streams")


class Effects:
    """Carries out the node's effects. `now_ms`: a monotonic clock."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._node: Final = node
        self._loop: Final = loop
        self._now_ms: Final = now_ms
        self.moves: Counter[tuple[str, str]] = Counter()
        """How many links were asked to hand over, by log and group."""
        self._links: dict[Grant | Pending, AnyLink] = {}
        self._scheduled = False
        self._at_work = False

    # -- which link a grant belongs to

    def attached(self, link: AnyLink) -> None:
        """Register a link: effects may concern it."""
        self._links[link.grant] = link

    def detached(self, link: AnyLink, *, closed: bool = False) -> None:
        """Make the node forget a link that is gone, or that will send nothing more.

        A second call has no effect.

        The caller requests the resulting effects with `soon` or `carry_out`.
        """
        if self._links.pop(link.grant, None) is not None:
            self._node.detach(link.grant, self._now_ms(), closed=closed)

    def unsubscribe(self, link: AnyLink) -> None:
        """Make the node remove the cursor of a `KeptLink`, whose `ended` is called when that is durable.

        The caller requests the resulting effects with `soon` or `carry_out`.
        """
        self._node.detach(link.grant, self._now_ms(), closed=True)

    def consumer(self, grant: Consuming) -> ConsumerLink | None:
        """Return the link with this grant; None if it is gone or will send nothing more."""
        link = self._links.get(grant)
        return link if isinstance(link, ConsumerLink) else None

    # -- carrying out

    def soon(self) -> None:
        """Carry out the effects at the end of this loop iteration.

        For callers that must finish their own work first.
        """
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._in_turn)

    def _in_turn(self) -> None:
        self._scheduled = False
        self.carry_out()

    def carry_out(self, by: Owner | None = None) -> None:
        """Carry out all effects, including those that the effects themselves cause.

        `by`: the connection whose attach caused them.
        """
        if self._at_work:
            return  # called by an effect: the loop below takes the new effects too
        self._at_work = True
        touched: dict[Owner, None] = {}
        try:
            while effects := self._node.take_effects():
                for effect in effects:
                    try:
                        link = self._perform(effect, by)
                    except Exception:  # the other effects belong to other links and must still be carried out
                        log.exception("effect_failed", effect=type(effect).__name__)
                        continue
                    if link is not None:
                        touched[link.owner] = None
        finally:
            self._at_work = False
        for owner in touched:
            owner.flush()

    def _perform(self, effect: Effect, by: Owner | None) -> AnyLink | None:
        """Carry out one effect. Returns the link that it concerned, if that link still exists."""
        match effect:
            case Granted(pending, grant) | Decided(pending, grant):
                return self._answer(pending, grant)
            case Denied(pending, error):
                return self._answer(pending, error)
            case Closed(grant, error):
                # the node has already forgotten it, so `detach` must not be called
                link = self._links.pop(grant, None)
                if link is not None:
                    link.evict(error, by)
                return link
            case Ended(grant, error):
                link = self._links.pop(grant, None)
                if isinstance(link, KeptLink):
                    link.ended(error)
                return link
            case Leave(grant, error, within_ms):
                link = self.consumer(grant)
                if link is not None:
                    self.moves[grant.log.name, grant.group or ""] += 1
                    link.leave(error, within_ms)
                return link
            case _:
                assert_never(effect)

    def _answer(self, pending: Pending, outcome: Grant | Pending | PeerError) -> AnyLink | None:
        link = self._links.pop(pending, None)
        if isinstance(outcome, Pending):
            if isinstance(link, PendingLink) and link.waits_on(outcome):
                self._links[outcome] = link
            else:
                self._node.detach(outcome, self._now_ms())
            return link
        if isinstance(link, PendingLink) and link.answer(outcome):
            return link
        # the client left while the attach was being decided: return the grant
        if not isinstance(outcome, PeerError):
            self._node.detach(outcome, self._now_ms())
        return None
