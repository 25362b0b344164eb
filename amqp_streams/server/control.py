"""The links beside the events: `<address>/$info`, `$management` and the answers. Spec: Event Streams 6; AMQP Management 1.0."""

from collections import deque
from typing import Final

from cproton_ffi import lib

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.server import transfers
from amqp_streams.server.engine import Pointer
from amqp_streams.server.links import IncomingLink, Link, Owner, Service
from amqp_streams.streams import management
from amqp_streams.streams.attach import Informing, Managing, Replying

INFO_INTERVAL_MS: Final = 20
"""Between two answers on one `$info` link (section 6 allows separation): a greedy client gets 50 a second."""
REPLIES_MAX: Final = 100
"""Answers that wait for credit on one link; beyond it the oldest goes."""
REQUEST_BYTES_MAX: Final = 1 << 20


class InfoLink(Link[Informing]):
    """`<address>/$info`: one message a credit, paced. Spec: Event Streams 6."""

    __slots__ = ("sent", "waiting")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Informing) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.sent = 0
        self.waiting = False

    def pump(self) -> None:
        """Answer one credit, and the next a little later."""
        if not self.alive or self.closing or self.waiting:
            return
        if lib.pn_link_credit(self.pointer) > 0:
            self.sent += 1
            transfers.send_message(self.pointer, self.service.node.info_message(self.grant), number=self.sent)
            self.waiting = True
            self.service.later(INFO_INTERVAL_MS, self._again)
        if lib.pn_link_get_drain(self.pointer):
            lib.pn_link_drained(self.pointer)

    def _again(self) -> None:
        self.waiting = False
        if self.alive:
            self.pump()
            self.owner.flush()


class ManagementLink(IncomingLink[Managing]):
    """Requests to `$management`."""

    __slots__ = ()

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Managing) -> None:
        size_max = min(service.limits.message_bytes, REQUEST_BYTES_MAX)
        super().__init__(service, owner, pointer, name, grant, size_max=size_max)

    def top_up(self) -> None:
        """Keep a small credit up: requests are few."""
        credit = lib.pn_link_credit(self.pointer)
        if self.alive and not self.closing and credit < REPLIES_MAX // 2:
            transfers.grant(self.pointer, REPLIES_MAX - credit)

    def take(self) -> None:
        """Carry out the requests that have arrived."""
        arrivals = self.arrived()
        for delivery, message in zip(arrivals.deliveries, arrivals.messages, strict=True):
            self._serve(delivery, message)
        self.top_up()

    def _serve(self, delivery: Pointer, message: bytes) -> None:
        try:
            request = management.parse_request(message)
        except WireError as error:
            transfers.reject(delivery, names.DECODE_ERROR, str(error))
            return
        carrier = self.owner.reply_link(request.reply_to)
        if carrier is None:
            description = "reply-to names no receiver of this connection: attach one first (source $management, or a dynamic source)"
            transfers.reject(delivery, names.PRECONDITION_FAILED, description)
            return
        answer = self.service.node.manage(request, self.owner.user, self.owner.user_groups)
        self.service.audit.managed(self.owner.user, request, answer)
        transfers.accept([delivery])
        carrier.post(management.answer_message(request, answer))
        self.service.effects.carry_out()


class ReplyLink(Link[Replying]):
    """Carries answers to a requester."""

    __slots__ = ("queue", "sent")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Replying) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.queue: deque[bytes] = deque(maxlen=REPLIES_MAX)
        self.sent = 0

    def post(self, message: bytes) -> None:
        """Send an answer as soon as there is credit."""
        self.queue.append(message)
        self.pump()

    def pump(self) -> None:
        """Send the answers that credit allows."""
        while self.alive and not self.closing and self.queue and lib.pn_link_credit(self.pointer) > 0:
            self.sent += 1
            transfers.send_message(self.pointer, self.queue.popleft(), number=self.sent)
        if not self.queue and lib.pn_link_get_drain(self.pointer):
            lib.pn_link_drained(self.pointer)
