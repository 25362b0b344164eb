"""Producers that send events in batches, with an event among them that is not valid, and what they do after
a rejection.

Spec: docs/batched-sends.md.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from amqp_streams import names
from amqp_streams.wire.types import Symbol, ULong
from tests.simulation.checks.ledger import Sent
from tests.simulation.peers.compressing import compressed
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.frames import batch_of, message_of, with_annotations
from tests.simulation.peers.links import Sender
from tests.simulation.peers.producers import FRAME_BYTES, Producer

_BATCH_BYTES: Final = 20_000
_INVALID: Final = "invalid"
_UNREADABLE: Final = (names.DECODE_ERROR, names.LINK_MESSAGE_SIZE_EXCEEDED, names.NOT_IMPLEMENTED)
"""The errors of a batch that cannot be decompressed."""


class BatchProducer(Producer):
    """Sends most events in batches, and some alone."""

    def __init__(self, world: Any, name: str, log: str, **options: Any) -> None:
        super().__init__(world, name, log, **options)
        random = self.random
        if self.binding == "relay":
            self.binding = "log"
        self.most = random.choice((1, 3, 10, 40))
        self.sizes = random.random() < 0.7
        self.asks = self.numbered or random.random() < 0.8
        """It asks for the extension, so a rejected batch stops its link."""
        self.capabilities += [names.CAPABILITY_BATCHED_SENDS] if self.asks else []
        self.codec: str | None = world.plan.codec() if self.asks else None
        self.properties = {names.BATCH_COMPRESSION: Symbol(self.codec)} if self.codec else {}
        self.draws = Random(f"{world.seed} {name} compression")
        self.invalid = random.random() < 0.5
        self.resumes = False
        self._first_invalid: dict[int, int] = {}
        """By delivery, the index of the first event that is not valid."""
        self._damaged: set[int] = set()
        """Deliveries that cannot be decompressed."""

    def connected(self, connection: Connection) -> None:
        self.resumes = False
        self._first_invalid.clear()
        self._damaged.clear()
        super().connected(connection)

    def _attached(self, fields: Mapping[str, Any]) -> None:
        answered = {str(key): value for key, value in (fields["properties"] or {}).items()}
        assert (names.BATCH_EVENTS in answered) == self.asks
        assert answered.get(names.BATCH_COMPRESSION) == self.codec
        super()._attached(fields)

    # -- sending

    def _send(self, link: Sender) -> None:
        if not self.resumes and self.random.random() < 0.2:
            super()._send(link)
            return
        batch: list[Sent] = []
        size = 0
        for _ in range(min(self.random.randint(1, self.most), len(self.waiting))):
            size += len(self.waiting[0].message)
            if batch and size > _BATCH_BYTES:
                break
            batch.append(self.waiting.popleft())
        self.world.ledger.send_batch(batch, self._link_number, self._partition)
        messages = [self._message(sent) for sent in batch]
        first_invalid = None
        if self.invalid and self.world.stormy and self.random.random() < 0.2:
            first_invalid = self.random.randint(0, len(messages))
            messages.insert(first_invalid, self._invalid())
        content = batch_of(messages, sizes=self.sizes, resumes=self.resumes)
        damaged = False
        if self.codec is not None and self.draws.random() < 0.7:
            damaged = self.world.stormy and self.draws.random() < 0.2
            content = compressed(content, self.codec, damage=self.draws if damaged else None)
            self.world.ledger.counts["compressed"] += 1
        self.resumes = False
        number = link.send(
            content,
            settled=self.presettled,
            frame_bytes=FRAME_BYTES,
            message_format=names.BATCH_MESSAGE_FORMAT,
        )
        if not self.presettled:
            self.in_flight[number] = batch
            if first_invalid is not None:
                self._first_invalid[number] = first_invalid
            if damaged:
                self._damaged.add(number)

    def _partition(self, sent: Sent) -> object:
        """What decides the partition of an event within a batch."""
        if self.binding == "key":
            return sent.number % 5
        spread = self.binding == "log" and not self.numbered and self.world.partitions(self.log) > 1
        return sent.number if spread else None

    def _invalid(self) -> bytes:
        """An event that the node must refuse: unreadable, for an unknown partition, or without a number."""
        chance = self.random.random()
        if chance < 0.5:
            return self.random.choice((b"", b"\xff" * 20))
        message = message_of(_INVALID, properties={}, padding=10)
        if self.numbered and chance < 0.7:
            return message
        annotations: dict[str, object] = {names.TARGET_PARTITION: Symbol("1000")}
        if self.numbered:
            annotations[names.SEQUENCE] = ULong(self.made)
        return with_annotations(message, annotations)

    # -- outcomes

    def _outcome(self, number: int, outcome: str | None, condition: str | None) -> None:
        if number in self._damaged and number in self.in_flight:
            self._damaged.discard(number)
            self._first_invalid.pop(number, None)
            assert outcome == "rejected", f"{self.name}: a batch that cannot be read is {outcome}"
            assert condition in _UNREADABLE, condition
            self._stopped(self.in_flight.pop(number))
            return
        if number in self.in_flight:
            assert outcome != "accepted" or number not in self._first_invalid, (
                f"{self.name}: a batch with an event that is not valid is accepted"
            )
            if self.link is not None and names.EVENT_INDEX in self.link.info:
                self._rejected(number, int(self.link.info[names.EVENT_INDEX]))
                return
            if outcome == "released":
                assert self.asks, f"{self.name} did not ask for the extension, and a transfer is released"
                self._stopped(self.in_flight.pop(number))
                self._first_invalid.pop(number, None)
                return
        self._first_invalid.pop(number, None)
        super()._outcome(number, outcome, condition)

    def _rejected(self, number: int, index: int) -> None:
        """The batch has an event that is not valid: its other events are sent again."""
        wanted = self._first_invalid.pop(number, None)
        assert index == wanted, f"{self.name}: event {index} is not valid, and {wanted} was not"
        self._stopped(self.in_flight.pop(number))

    def _stopped(self, events: list[Sent]) -> None:
        """Nothing of this transfer is stored. After the last outcome, a batch resumes the link."""
        for sent in events:
            self.world.ledger.not_stored(sent, ordered=self.asks)
        self.resumes = self.asks
        self._later(events)
        self._failed = bool(self.in_flight)
        self.push()
