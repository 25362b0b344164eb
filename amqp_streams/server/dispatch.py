"""Translates Proton's events of one connection into calls of its links. Spec: AMQP 1.0 part 2.

Law: nothing that a client sends raises an exception out of this module. A forbidden request is answered with
the standard's condition on the smallest endpoint that is at fault: the delivery, the link, the session, the
connection.
"""

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Final

import structlog

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.proton import events, links, receiving, records, sessions
from amqp_streams.proton.conditions import condition_text
from amqp_streams.proton.engine import Engine
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.values import text
from amqp_streams.server.links.batched import BatchedLink
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.control import REQUEST_BYTES_MAX, InfoLink, ManagementLink, ReplyLink
from amqp_streams.server.links.link import AnyLink, IncomingLink, OutgoingLink, Owner, Service
from amqp_streams.server.links.pending import KeptLink, PendingLink
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.server.links.producers import Producers
from amqp_streams.server.links.termini import answer_termini, attach_request, require_whole
from amqp_streams.server.traffic import Traffic
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Grant,
    Informing,
    Kept,
    Managing,
    Pending,
    Producing,
    Relaying,
    Replying,
)
from amqp_streams.wire.formats import Endpoint

HANDLES_PER_LINK: Final = 4
"""How many links, including refused ones, a connection may have in Proton, as a multiple of `limits.links`. A
refused link occupies memory until the client detaches it.
"""
_FEW_PRODUCERS: Final = 4
"""With at most this many producer links, one delivery event makes all of them take what has arrived."""

# Proton keeps credit in a signed 32-bit integer; AMQP allows an unsigned one (2.7.4).
CREDIT_MAX: Final = (1 << 31) - 1

log = structlog.get_logger("amqp_streams")


class Dispatch:
    """The links of one connection, and the events that concern them."""

    __slots__ = (
        "_engine",
        "_entered",
        "_excess",
        "_few_producers",
        "_only_consumers",
        "_owner",
        "_refused",
        "_service",
        "_watched",
        "closed",
        "consumers",
        "container",
        "links",
        "opened",
        "peer",
        "producers",
        "traffic",
    )

    def __init__(self, service: Service, owner: Owner, engine: Engine, peer: str) -> None:
        self._service = service
        self._owner = owner
        self._engine = engine
        self.peer = peer
        self.container = ""
        self.opened = False
        self._entered = False
        """Whether the connection counts toward its user's quota of connections."""
        self.closed = False
        self.links: dict[Pointer, AnyLink] = {}
        self.consumers: dict[ConsumerLink, None] = {}
        self.producers = Producers()
        self.traffic = Traffic(service.monotonic_ms())
        self._few_producers = False
        self._only_consumers = False
        self._watched: list[ConsumerLink] = []
        """The links whose settlements `run` passes to `disposition` and `report`."""
        self._refused: dict[Pointer, Pointer] = {}
        self._excess: set[Pointer] = set()
        """Links with a credit below 0 after their last flow: either more deliveries are in flight than the
        client now allows, or the credit exceeded 31 bits.
        """

    def run(self, until: float) -> bool:
        """Process events until this `perf_counter`, and at least one.

        Returns True if none is left. Delivery events do not end the iteration, only the others do.
        """
        # Local names: this loop may run once for each delivery.
        collector = self._engine.collector
        peek, pop, kind_of, is_delivery = events.peek, events.pop, events.kind, events.DELIVERY
        taken = False
        behind = self.producers.behind  # always the same list
        if behind:
            self.producers.catch_up(until)
        while not behind and (event := peek(collector)):
            kind = kind_of(event)
            if kind == is_delivery:
                # A connection with only ordinary consumers, the most common kind: no state depends on their
                # settlements, so their link is not looked up.
                if self._only_consumers:
                    if events.settle_accepted(collector):
                        continue
                    self._on_delivery(event, until)
                elif not self._few_producers:
                    self._on_delivery(event, until)
                # Each delivery event belongs to one of these few links: taking from all of them once covers
                # the events that follow, too.
                else:
                    if not taken:
                        taken = True
                        self.producers.take_all(until)
                    events.pass_deliveries(collector)
                    continue
            else:
                # A detach or a session's end may follow a transfer: take again after it.
                taken = False
                self._on_event(kind, event)
                if perf_counter() > until:
                    pop(collector)
                    break
            pop(collector)
        for consumer in self._watched:
            consumer.report()
        return not behind and not peek(collector)

    def lost(self) -> None:
        """End all links: the connection has ended, and Proton's pointers must not be used after this call."""
        self._forget_all(tuple(self.links.values()))
        if self._entered:
            self._entered = False
            self._owner.account.leave()

    def refuse_excess(self) -> None:
        """Close the links with more credit than Proton can count: it would send nothing on them."""
        for pointer in self._excess & self.links.keys():
            description = f"a link-credit above {CREDIT_MAX} is not supported: grant less credit at once"
            self.links[pointer].close(PeerError(names.NOT_IMPLEMENTED, description))
        self._excess.clear()

    # -- deliveries

    def _on_delivery(self, event: Pointer, until: float) -> None:
        pointer, delivery = events.link(event), events.delivery(event)
        link = self.links.get(pointer)
        match link:
            case ConsumerLink() if not links.current(pointer):
                link.disposition(delivery)
            case ProducerLink() if link.second and link.settled_by_sender(delivery):
                pass
            case ProducerLink():
                self.producers.take(link, until)
            case ManagementLink():
                link.take()
            case _ if links.is_sender(pointer) and links.current(pointer):
                # All deliveries that the node sends are complete at this point. This one was started by the
                # client, against the direction of its link.
                self._engine.close(
                    PeerError(
                        names.ILLEGAL_STATE, "a transfer arrived on a link on which this node is the sender"
                    )
                )
            case _ if links.is_sender(pointer):
                records.settle_returned(delivery)
            case _:
                receiving.discard(pointer)

    # -- endpoints

    def _on_event(self, kind: int, event: Pointer) -> None:
        match kind:
            case events.CONNECTION_OPEN:
                self._on_open()
            case events.SESSION_BEGIN:
                sessions.answer_begin(events.session(event))
            case events.LINK_ATTACH:
                self._on_attach(events.link(event))
            case events.LINK_FLOW:
                self._on_flow(events.link(event))
            case events.LINK_CLOSE | events.LINK_DETACH:
                self._on_detach(events.link(event), closed=kind == events.LINK_CLOSE)
            case events.SESSION_END:
                self._on_end(events.session(event))
            case events.CONNECTION_CLOSE:
                self._on_close()
            case events.TRANSPORT_ERROR:
                reason = condition_text(self._engine.failure)
                self._service.warn("connection_failed", peer=self.peer, reason=reason)

    def _on_open(self) -> None:
        self.container = text(self._engine.peer_container) or ""
        self.opened = True
        service = self._service
        self._engine.open(
            container_id=service.container_id, offered=service.offered, properties=service.properties
        )
        # The connection checks for silence itself: Proton does not know when the node has paused reading.
        self._engine.leave_silence_to_caller()
        try:
            require_whole(self._owner, "the container id", self.container)
        except PeerError as error:
            self._service.warn("connection_failed", peer=self.peer, reason=str(error))
            self._engine.close(error)
            return
        try:
            self._owner.account.enter()
        except PeerError as error:
            self._service.warn("quota_exceeded", peer=self.peer, reason=error.description)
            self._engine.close(error)
        else:
            self._entered = True

    def _on_attach(self, pointer: Pointer) -> None:
        if not self._entered:  # the connection is being closed
            return
        if len(self.links) + len(self._refused) >= HANDLES_PER_LINK * self._service.limits.links:
            self._engine.close(
                PeerError(names.RESOURCE_LIMIT_EXCEEDED, "too many refused links were not detached")
            )
            return
        service, owner = self._service, self._owner
        try:
            if len(self.links) >= service.limits.links:
                raise PeerError(
                    names.RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {service.limits.links} links"
                )
            owner.account.require_link()
            request = attach_request(pointer, self.container, service.limits.filter_bytes, owner)
            # Now, because the bytes of the attach are not kept until a pending attach is answered.
            endpoint = None if request.consumer else owner.formats.find_link(request.link)
            grant = service.node.attach(request, service.monotonic_ms())
        except PeerError as error:
            self._refuse(pointer, error)
        except StorageError as error:
            self._refuse(pointer, PeerError(names.INTERNAL_ERROR, str(error)))
        else:
            if isinstance(grant, Pending):
                self._add(
                    PendingLink(
                        service, owner, pointer, grant, partial(self._on_answer, pointer, request, endpoint)
                    )
                )
            else:
                self._grant(pointer, request, grant, endpoint)
        service.effects.carry_out(owner)

    def _on_answer(
        self, pointer: Pointer, request: AttachRequest, endpoint: Endpoint | None, outcome: Grant | PeerError
    ) -> None:
        """Answer a pending attach."""
        # The real link takes its place, so it is counted only once.
        del self.links[pointer]
        self._owner.account.links -= 1
        if isinstance(outcome, PeerError):
            self._refuse(pointer, outcome)
        else:
            self._grant(pointer, request, outcome, endpoint)

    def _grant(
        self, pointer: Pointer, request: AttachRequest, grant: Grant, endpoint: Endpoint | None
    ) -> None:
        answer_termini(pointer, request, grant)
        message_bytes = self._service.limits.message_bytes
        links.set_size_max(
            pointer, min(message_bytes, REQUEST_BYTES_MAX) if isinstance(grant, Managing) else message_bytes
        )
        handle = self._engine.answer_attach(pointer)
        link = self._link(pointer, request.link, grant)
        self._add(link)
        if isinstance(link, OutgoingLink):
            link.handle = handle
        elif isinstance(link, IncomingLink):
            link.endpoint = endpoint
        self._service.note(
            "link_attached",
            peer=self.peer,
            link=link.name,
            address=request.address or "",
            consumer=request.consumer,
        )
        if isinstance(link, ProducerLink | ManagementLink):
            link.top_up()
        # Credit that arrived while the attach was pending caused no pump.
        elif isinstance(link, ConsumerLink | InfoLink) and links.credit(pointer) > 0:
            self._service.pump_later(link)
        elif isinstance(link, OutgoingLink) and links.wants_drain(pointer):
            self._owner.owe_flow(link)

    def _add(self, link: AnyLink) -> None:
        self.links[link.pointer] = link
        self._owner.account.links += 1
        self._service.effects.attached(link)
        self._look_at_links()

    def _refuse(self, pointer: Pointer, error: PeerError) -> None:
        """Answer with an attach and a detach.

        The link exists in Proton until the client detaches too, and the client may send on it until then.
        """
        self._service.note("attach_refused", peer=self.peer, link=links.name(pointer), reason=str(error))
        if error.condition == names.UNAUTHORIZED_ACCESS:
            self._service.audit.refused(self._owner.user, error.description)
        elif error.info.get("field") == "filter":
            self._service.audit.filter_refused(self._owner.user, error.description)
        links.refuse(pointer, error)
        self._refused[pointer] = links.session(pointer)
        self._look_at_links()

    def _link(self, pointer: Pointer, name: str, grant: Grant) -> AnyLink:
        service, owner = self._service, self._owner
        match grant:
            case Producing() | Relaying():
                producer = ProducerLink(
                    service, owner, pointer, name, grant, second=links.settles_second(pointer)
                )
                self.producers.links.append(producer)
                return producer
            case Consuming():
                kind = ConsumerLink if grant.batching is None else BatchedLink
                consumer = kind(
                    service,
                    owner,
                    pointer,
                    name,
                    grant,
                    container=self.container,
                    presettled=links.presettled(pointer),
                )
                self.consumers[consumer] = None
                if consumer.watched:
                    self._watched.append(consumer)
                return consumer
            case Informing():
                return InfoLink(service, owner, pointer, name, grant)
            case Managing():
                return ManagementLink(service, owner, pointer, name, grant)
            case Replying():
                return ReplyLink(service, owner, pointer, name, grant)
            case Kept():
                return KeptLink(service, owner, pointer, name, grant)

    def _on_flow(self, pointer: Pointer) -> None:
        link = self.links.get(pointer)
        if isinstance(link, OutgoingLink):
            credit = links.credit(pointer)
            if credit < 0:
                self._excess.add(pointer)
            elif pointer in self._excess:
                self._excess.discard(pointer)
            # Proton answers a drain only if there is credit to return.
            if credit <= 0 and links.wants_drain(pointer):
                self._owner.owe_flow(link)
            link.pump()

    def _on_detach(self, pointer: Pointer, *, closed: bool) -> None:
        link, detach = self.links.get(pointer), partial(self._detach, pointer, closed)
        if isinstance(link, KeptLink) and closed and not link.closing:
            link.unsubscribe(detach)
        else:
            detach()
        self._service.effects.carry_out()

    def _detach(self, pointer: Pointer, closed: bool, error: PeerError | None = None) -> None:
        link = self.links.get(pointer)
        if link is not None:
            if isinstance(link, PendingLink):
                link.close()
            self._forget(link, closed=closed)
            reason = condition_text(links.peer_condition(pointer))
            self._service.note("link_detached", peer=self.peer, link=link.name, reason=reason)
        self._refused.pop(pointer, None)
        self._look_at_links()
        links.close(pointer, error)
        links.free(pointer)

    def _on_end(self, session: Pointer) -> None:
        self._forget_all([link for link in self.links.values() if link.session == session])
        self._refused = {pointer: owner for pointer, owner in self._refused.items() if owner != session}
        self._look_at_links()
        sessions.close(session)
        sessions.free(session)
        self._service.effects.carry_out()

    def _on_close(self) -> None:
        self.closed = True
        self.lost()
        self._engine.close()
        self._service.effects.carry_out()

    def _forget_all(self, links: Sequence[AnyLink]) -> None:
        """End all links, first the pending attaches: they must not get what the others release."""
        for link in sorted(links, key=lambda link: not isinstance(link, PendingLink)):
            try:
                self._forget(link)
            except Exception:  # the other links must end as well
                log.exception("link_not_closed", link=link.name[:64])

    def _forget(self, link: AnyLink, *, closed: bool = False) -> None:
        """End one link. The caller carries out the node's effects after all its links have ended."""
        link.alive = False
        self.traffic.add(link)
        del self.links[link.pointer]
        self._excess.discard(link.pointer)
        account = self._owner.account
        account.links -= 1
        match link:
            case ManagementLink() | ReplyLink():
                link.let_go()
            case ProducerLink():
                link.let_go()
                account.forget(link)
                self.producers.remove(link)
            case ConsumerLink():
                link.report_settled()
                self._service.confirming.forget(link)
                if link.watched:
                    self._watched = [consumer for consumer in self._watched if consumer is not link]
                account.forget(link)
                self.consumers.pop(link, None)
        self._service.effects.detached(link, closed=closed)
        if isinstance(link, ConsumerLink):
            link.release()  # last: the node has asked its reader how far it came

    def watch(self) -> None:
        """Find the consumers whose settlements must be reported."""
        self._watched = [consumer for consumer in self.consumers if consumer.watched]
        self._look_at_links()

    def _look_at_links(self) -> None:
        """Find out whether `run` can serve the connection faster.

        It can if the connection has only ordinary consumers, or only a few ordinary producers.
        """
        links = len(self.links) + len(self._refused)
        self._only_consumers = bool(self.consumers) and len(self.consumers) == links and not self._watched
        few = len(self.producers.links) == links <= _FEW_PRODUCERS
        self._few_producers = few and not any(producer.second for producer in self.producers.links)
