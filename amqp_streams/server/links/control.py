"""Links that carry requests and answers instead of events: `<address>/$info` and `$management`.

Spec: Event Streams 6; AMQP Management 1.0.

Laws: all work is done in `Turns`, which limits it to about a millisecond of a loop iteration for the whole
node. The node computes an answer only if the client has granted credit for it and has read the earlier
answers. A change that has begun is completed, also if its link ends.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError, WireError
from amqp_streams.node.lookups import Answering, Begun
from amqp_streams.node.reading import storage_refusal
from amqp_streams.node.requests import RequestSteps
from amqp_streams.node.writes import Wait
from amqp_streams.proton import links, outcomes, sending
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import (
    AnyLink,
    IncomingLink,
    OutgoingLink,
    Owner,
    Replier,
    Requester,
    Service,
)
from amqp_streams.server.links.turns import Turns, Worker
from amqp_streams.streams import management
from amqp_streams.streams.attach import Informing, Managing, Replying
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import Steps

INFO_INTERVAL_MS: Final = 20
"""The pause between two messages on one `$info` link: a client gets at most 50 a second (section 6 allows a
pause).
"""
REQUESTS_MAX: Final = 100
"""How many requests of one link may wait or run. This is the credit that the link is granted."""
REQUEST_BYTES_MAX: Final = 1 << 20

log = structlog.get_logger("amqp_streams")


class InfoLink(OutgoingLink[Informing]):
    """The link of `<address>/$info`: one message for each credit, with a pause in between.

    A message is at least as new as the credit for it, on a store with other nodes as well.

    Spec: Event Streams 6.
    """

    __slots__ = ("_refresh", "_steps", "_wait", "scheduled", "sent", "waiting")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Informing) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.sent = 0
        self.waiting = False
        self.scheduled = False
        self._refresh: Answering[None] | None = None
        """What the store is asked before the next message, and what it waits for."""
        self._wait: Wait | None = None
        self._steps: Steps[bytes] | None = None
        """What is left to do for the next message."""

    def pump(self) -> None:
        """Send a message soon if there is credit; the next one follows after `INFO_INTERVAL_MS`."""
        if not self.alive or self.closing or self.waiting:
            return
        # Through `Turns` and not at once: an answer about many partitions takes milliseconds.
        if links.credit(self.pointer) > 0:
            self.service.turns.add(self)

    def work(self) -> bool:
        """Do one step of the next message, and send it after the last one. See `turns.Worker`."""
        if not self.alive or self.closing or self.waiting or links.credit(self.pointer) <= 0:
            return False
        if self.clogged():
            self.owner.await_room(self)
            return False
        try:
            if self._steps is None:
                if not self._is_refreshed():
                    return False
                self._steps = self.service.node.info_message(self.grant, self.service.monotonic_ms())
            message = self._computed(self._steps)
            if message is None:
                return True
        except StorageError as error:
            self.close(storage_refusal(error))
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

    def _is_refreshed(self) -> bool:
        """Whether the store has answered. If not, `work` is called when it has."""
        # More credit starts a step as well.
        if self._wait is not None and not self._wait.over:
            return False
        if self._refresh is None:
            self._refresh = self.service.node.refreshed(self.grant.log, self.owner.number)
        self._wait = next(self._refresh, None)
        if self._wait is None:
            self._refresh = None
            # The answer may have closed this link, because the log was deleted.
            return self.alive and not self.closing
        self._wait.then(partial(self.service.turns.add, self))
        return False

    def _computed(self, steps: Steps[bytes]) -> bytes | None:
        """The message, or None: more steps follow. Raises like `Node.info_message`."""
        try:
            next(steps)
        except StopIteration as ended:
            message: bytes = ended.value
            self._steps = None
            return message
        return None

    def _again(self) -> None:
        self.waiting = False
        if self.alive:
            self.pump()
            self.owner.flush()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that has arrived. `request` is None until the message is parsed."""

    delivery: Pointer
    message: bytes
    request: Request | None = None


@dataclass(slots=True, eq=False)
class _Running:
    """A request that is carried out in steps."""

    waiting: _Waiting
    request: Request
    carrier: Replier
    steps: RequestSteps
    wait: Wait | None = None
    """What the next step waits for."""
    begun: Begun | None = None
    """The end of a change that the request has begun."""

    def step(self) -> Answer | None:
        """Do the next step, unless the request waits. Returns the answer after the last step."""
        # A request that arrives meanwhile, and each addition to `Turns`, call this as well.
        if self.wait is not None and not self.wait.over:
            return None
        try:
            self.wait = next(self.steps)
        except StopIteration as ended:
            self.wait = None
            answer: Answer = ended.value
            return answer
        except Exception as error:
            self.wait = None
            # A request that failed must get an answer: without it, its client waits.
            log.exception(
                "request_failed", operation=self.request.operation[:64], type=self.request.type[:64]
            )
            return Answer(management.SERVER_ERROR, f"the node failed: {type(error).__name__}")
        if isinstance(self.wait, Begun):
            self.begun = self.wait
        return None

    def continues(self, worker: Worker, turns: Turns) -> bool:
        """Whether the next step can be done now. If not, `worker` is added to `turns` when it can."""
        if self.wait is None or self.wait.over:
            return True
        self.wait.then(partial(turns.add, worker))
        return False


@dataclass(slots=True, eq=False)
class _Unanswered:
    """A request that has begun a change, and whose link has ended: only its answer is dropped."""

    name: str
    owner: Owner
    service: Service
    running: _Running

    def work(self) -> bool:
        """Do the next step. See `turns.Worker`."""
        answer = self.running.step()
        self.service.effects.soon()
        if answer is None:
            return self.running.continues(self, self.service.turns)
        self.service.audit.managed(self.owner.user, self.running.request, answer)
        return False


class ManagementLink(IncomingLink[Managing]):
    """A link that receives requests to `$management` and performs them in the order of their arrival."""

    __slots__ = ("_running", "_waiting")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Managing) -> None:
        size_max = min(service.limits.message_bytes, REQUEST_BYTES_MAX)
        super().__init__(service, owner, pointer, name, grant, size_max=size_max)
        self._waiting: deque[_Waiting] = deque()
        self._running: _Running | None = None

    def top_up(self) -> None:
        """Grant credit up to `REQUESTS_MAX`, less the requests that wait, when half of it is used up."""
        credit = links.credit(self.pointer) + len(self._waiting)
        if self.alive and not self.closing and credit < REQUESTS_MAX // 2:
            links.grant(self.pointer, REQUESTS_MAX - credit)

    def take(self) -> None:
        """Queue the requests that have arrived. Requests beyond the limits of `Turns` are rejected."""
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
        """Drop all requests that have not been answered."""
        super().let_go()
        while self._waiting:
            self.service.turns.release(self.owner.number, len(self._waiting.popleft().message))
        running, self._running = self._running, None
        if running is None:
            return
        if running.begun is None:
            running.steps.close()
        else:
            rest = _Unanswered(self.name, self.owner, self.service, running)
            running.begun.then(partial(self.service.turns.add, rest))

    def work(self) -> bool:
        """Start the next request, or do the next step of the running one. See `turns.Worker`."""
        if not self.alive or self.closing:
            return False
        if self._running is None:
            if not self._waiting:
                return False
            return self._begin(self._waiting[0])
        running = self._running
        answer = running.step()
        if answer is None:
            return running.continues(self, self.service.turns)
        self._answer(running, answer)
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
        # Credit first: the answer of an executed request must never be lost for lack of credit.
        if not carrier.reserve(self):
            return False  # the reply link adds this link to `Turns` again when it has credit
        self._running = _Running(
            waiting,
            request,
            carrier,
            self.service.node.managing(
                replace(request, connection=self.owner.number), self.owner.user, self.owner.user_groups
            ),
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
        # The request may have closed links: their detaches must be written before anything else is sent.
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
    """Carries answers to the client that sent the requests.

    An answer is computed only after credit was reserved for it. `queue` holds answers whose credit the client
    took back in the meantime.
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
        """Reserve credit for the answer to one more request.

        Returns False if no credit is free; `by` is then scheduled again as soon as credit is.
        """
        # A link that ended gives its reservation back.
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
        """Send an answer on the credit that `reserve` kept for it."""
        self._reserved.discard(by)
        if self.alive and not self.closing:
            self.queue.append(message)
            self.pump()

    def pump(self) -> None:
        """Send the answers that credit allows, and schedule the requests that wait for credit."""
        if not self.alive or self.closing:
            return
        while self.queue and links.credit(self.pointer) > 0:
            self.sent += 1
            self.delivery_count += 1
            sending.send_message(self.pointer, self.queue.popleft(), number=self.sent)
        # A drained link has no credit left, so all reserved answers go first.
        if not self.queue and not self._reserved:
            self.answer_drain()
        if self._waiting and self._room() > 0:
            self.let_go()

    def let_go(self) -> None:
        """Let the requests that wait for this link look for a reply link again."""
        waiting, self._waiting = self._waiting, {}
        for link in waiting:
            self.service.turns.add(link)

    def _room(self) -> int:
        return links.credit(self.pointer) - len(self.queue) - len(self._reserved)


def reply_link(attached: Iterable[AnyLink], address: str | None) -> ReplyLink | None:
    """See `Owner.reply_link`."""
    found = [link for link in attached if isinstance(link, ReplyLink)]
    if address is None:
        return found[0] if len(found) == 1 else None
    return next((link for link in found if address in link.grant.addresses), None)
