"""Links that carry requests and answers instead of events: `<address>/$info` and `$management`. Spec: Event
Streams 6; AMQP Management 1.0.

Laws: their work is done in `Turns`, a few milliseconds a turn for the whole node; no answer is computed that
its peer does not take: an answer is made only where there is credit for it, and where what was sent before
has left.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import structlog

from amqp_streams import names
from amqp_streams.errors import PeerError, WireError
from amqp_streams.node.requests import Steps
from amqp_streams.proton import links, outcomes, sending
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import IncomingLink, OutgoingLink, Owner, Replier, Requester, Service
from amqp_streams.streams import management
from amqp_streams.streams.attach import Informing, Managing, Replying
from amqp_streams.streams.management import Answer, Request

INFO_INTERVAL_MS: Final = 20
"""Between two answers on one `$info` link (section 6 allows separation): a greedy client gets 50 a second."""
REQUESTS_MAX: Final = 100
"""Requests of one link that are being carried out or wait: the credit it is granted."""
REQUEST_BYTES_MAX: Final = 1 << 20

log = structlog.get_logger("amqp_streams")


class InfoLink(OutgoingLink[Informing]):
    """`<address>/$info`: one message a credit, paced. Spec: Event Streams 6."""

    __slots__ = ("scheduled", "sent", "waiting")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Informing) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.sent = 0
        self.waiting = False
        self.scheduled = False

    def pump(self) -> None:
        """Answer one credit soon, and the next a little later."""
        if not self.alive or self.closing or self.waiting:
            return
        if links.credit(self.pointer) > 0:
            self.service.turns.add(self)

    def work(self) -> bool:
        """See `turns.Worker`."""
        if not self.alive or self.closing or self.waiting or links.credit(self.pointer) <= 0:
            return False
        if self.clogged():
            self.owner.await_room(self)
            return False
        try:
            message = self.service.node.info_message(self.grant, self.service.monotonic_ms())
        except WireError as error:
            log.exception("info_failed", log=self.grant.log.name)
            self.close(PeerError(names.INTERNAL_ERROR, f"the node cannot encode the information: {error}"))
        else:
            self.sent += 1
            self.delivery_count += 1
            sending.send_message(self.pointer, message, number=self.sent)
            self.waiting = True
            self.service.later(INFO_INTERVAL_MS, self._again)
            self.answer_drain()
        self.owner.flush()
        return False

    def _again(self) -> None:
        self.waiting = False
        if self.alive:
            self.pump()
            self.owner.flush()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that has arrived; `request` once it was looked at."""

    delivery: Pointer
    message: bytes
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class _Running:
    waiting: _Waiting
    request: Request
    carrier: Replier
    steps: Steps


class ManagementLink(IncomingLink[Managing]):
    """A link that receives requests to `$management` and performs them in the order of their arrival."""

    __slots__ = ("_running", "_waiting")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Managing) -> None:
        size_max = min(service.limits.message_bytes, REQUEST_BYTES_MAX)
        super().__init__(service, owner, pointer, name, grant, size_max=size_max)
        self._waiting: deque[_Waiting] = deque()
        self._running: _Running | None = None

    def top_up(self) -> None:
        """Keep a small credit up: requests are few."""
        credit = links.credit(self.pointer) + len(self._waiting)
        if self.alive and not self.closing and credit < REQUESTS_MAX // 2:
            links.grant(self.pointer, REQUESTS_MAX - credit)

    def take(self) -> None:
        """Put the requests that have arrived in line."""
        arrivals = self.arrived()
        for delivery, message in zip(arrivals.deliveries, arrivals.messages, strict=True):
            if self.service.turns.hold(self.owner.number, len(message)):
                self._waiting.append(_Waiting(delivery, message))
            else:
                outcomes.reject(
                    delivery,
                    names.RESOURCE_LIMIT_EXCEEDED,
                    "too many requests are waiting: send this request again after an answer",
                )
        if self._waiting:
            self.service.turns.add(self)
        self.top_up()

    def let_go(self) -> None:
        """Drop what is not carried out yet."""
        super().let_go()
        while self._waiting:
            self.service.turns.release(self.owner.number, len(self._waiting.popleft().message))
        self._running = None

    def work(self) -> bool:
        """See `turns.Worker`: begin a request, or go on with the one that was begun."""
        if not self.alive or self.closing:
            return False
        if self._running is None:
            if not self._waiting:
                return False
            return self._begin(self._waiting[0])
        running = self._running
        try:
            next(running.steps)
        except StopIteration as ended:
            self._answer(running, ended.value)
        except Exception as error:
            log.exception(
                "request_failed", operation=running.request.operation[:64], type=running.request.type[:64]
            )
            self._answer(running, Answer(management.SERVER_ERROR, f"the node failed: {type(error).__name__}"))
        return True

    def _begin(self, waiting: _Waiting) -> bool:
        try:
            request = waiting.request = waiting.request or management.parse_request(waiting.message)
        except WireError as error:
            return self._refuse(waiting, names.DECODE_ERROR, str(error))
        carrier = self.owner.reply_link(request.reply_to)
        if carrier is None:
            description = (
                "reply-to does not name a receiver of this connection: first attach one with the source"
                " $management or a dynamic source"
            )
            return self._refuse(waiting, names.PRECONDITION_FAILED, description)
        if not carrier.reserve(self):
            return False  # it adds this link again when it has credit
        self._running = _Running(
            waiting,
            request,
            carrier,
            self.service.node.managing(request, self.owner.user, self.owner.user_groups),
        )
        return True

    def _refuse(self, waiting: _Waiting, condition: str, description: str) -> bool:
        self._done(waiting)
        outcomes.reject(waiting.delivery, condition, description)
        self.owner.flush()
        return True

    def _answer(self, running: _Running, answer: Answer) -> None:
        self._running = None
        self._done(running.waiting)
        self.service.audit.managed(self.owner.user, running.request, answer)
        outcomes.give([running.waiting.delivery], outcomes.ACCEPTED)
        running.carrier.post(self, _encoded(running.request, answer))
        self.service.effects.carry_out()
        self.top_up()
        self.owner.flush()

    def _done(self, waiting: _Waiting) -> None:
        first = self._waiting.popleft()
        assert first is waiting, "requests are carried out in their order"
        self.service.turns.release(self.owner.number, len(waiting.message))


def _encoded(request: Request, answer: Answer) -> bytes:
    try:
        return management.answer_message(request, answer)
    except WireError as error:
        log.exception("request_failed", operation=request.operation[:64], type=request.type[:64])
        return management.answer_message(
            request, Answer(management.SERVER_ERROR, f"the node cannot encode the answer: {error}")
        )


class ReplyLink(OutgoingLink[Replying]):
    """Carries answers to a requester.

    One is made only when there is credit for it: `queue` is for a peer that takes credit back.
    """

    __slots__ = ("_reserved", "_waiting", "queue", "scheduled", "sent")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Replying) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.queue: deque[bytes] = deque()
        self.sent = 0
        self.scheduled = False
        self._reserved: set[Requester] = set()
        self._waiting: dict[Requester, None] = {}

    def reserve(self, by: Requester) -> bool:
        """Keep credit for the answer to one more request;

        False: there is none, and `by` goes on when there is.
        """
        self._reserved = {each for each in self._reserved if each.alive and not each.closing}
        stuck = self.clogged()
        if self.alive and not self.closing and not stuck and self._room() > 0:
            self._reserved.add(by)
            return True
        self._waiting[by] = None
        if stuck:
            self.owner.await_room(self)
        return False

    def post(self, by: Requester, message: bytes) -> None:
        """Send an answer on the credit that was kept for it."""
        self._reserved.discard(by)
        if self.alive and not self.closing:
            self.queue.append(message)
            self.pump()

    def pump(self) -> None:
        """Send the answers that credit allows, and let requests go on."""
        if not self.alive or self.closing:
            return
        while self.queue and links.credit(self.pointer) > 0:
            self.sent += 1
            self.delivery_count += 1
            sending.send_message(self.pointer, self.queue.popleft(), number=self.sent)
        if not self.queue and not self._reserved:
            self.answer_drain()
        if self._waiting and self._room() > 0:
            self.let_go()

    def let_go(self) -> None:
        """Requests that waited for this link look for one again."""
        waiting, self._waiting = self._waiting, {}
        for link in waiting:
            self.service.turns.add(link)

    def _room(self) -> int:
        return links.credit(self.pointer) - len(self.queue) - len(self._reserved)
