"""Producers as in practice: windows, both settle modes, pre-settled and large messages, deliveries that are
aborted or left unfinished, and numbers.

A producer keeps events without an outcome, and sends them again on its next link.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from amqp_streams import names
from amqp_streams.wire.types import Array, Symbol, UByte, ULong, Value
from tests.simulation.checks.ledger import Sent
from tests.simulation.machine.logins import PLAIN_USER, Logins
from tests.simulation.machine.schedule import MS, SECOND
from tests.simulation.peers.client import Client
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.frames import message_of, with_annotations
from tests.simulation.peers.links import Sender

FRAME_BYTES: Final = 700


class Producer(Client):
    """Sends events to one log. `numbered`: each once. `presettled`: without waiting for outcomes."""

    def __init__(self, world: Any, name: str, log: str, *, numbered: bool = False, **options: Any) -> None:
        super().__init__(world, name, **options)
        random = self.random
        self.log = log
        self.numbered = numbered
        self.presettled = not numbered and random.random() < 0.3
        self.second = random.random() < (0.6 if self.presettled else 0.3)
        self.window = random.choice((1, 5, 50))
        self.large = random.random() < (0.6 if "abusers" in world.plan.faults else 0.2)
        self.aborts = random.random() < 0.4
        self.binding = "log" if numbered else random.choice(("log", "log", "partition", "key", "relay"))
        self.capabilities = [names.CAPABILITY_IDEMPOTENT_PRODUCER] if numbered else []
        self.properties: dict[str, object] = {}
        """Of its links."""
        self.waiting: deque[Sent] = deque()
        self.in_flight: dict[int, list[Sent]] = {}
        """Deliveries without an outcome, and their events."""
        self.made = 0
        self.link: Sender | None = None
        self._failed = False
        self._link_number = 0
        self._pause_until_us = 0
        self._dangling: int | None = None

    @property
    def done(self) -> bool:
        return not self.waiting and not self.in_flight

    def make(self, events: int) -> None:
        """These events are there, to be sent."""
        random = self.random
        for _ in range(events):
            key = f"{self.name}.{self.made}"
            properties: dict[str, Value] = {"n": self.made, "color": random.choice(("red", "green", "blue"))}
            padding = random.choice((0, 10, 100))
            if self.large and random.random() < 0.2:
                padding = random.randint(1000, 5000)
            message = message_of(
                key,
                properties=properties,
                padding=padding,
                header=random.random() < 0.2,
                group_key=f"k{self.made % 5}" if self.binding == "key" else None,
                to=self.log if self.binding == "relay" else None,
            )
            self.waiting.append(Sent(key, self.log, message, self.numbered, properties, self.name, self.made))
            self.made += 1
        self.push()

    # -- its link

    def connected(self, connection: Connection) -> None:
        self._link_number = next(self.world.link_numbers)
        address: str | None = self.log
        options: dict[str, Any] = {"snd_settle_mode": UByte(1 if self.presettled else 0)}
        properties = dict(self.properties)
        if self.second:
            options["rcv_settle_mode"] = UByte(1)
        if self.capabilities:
            options["target"] = {"capabilities": Array(Symbol, tuple(map(Symbol, self.capabilities)))}
        if self.numbered:
            properties[names.PRODUCER_ID] = self.name
        if self.binding == "partition":
            properties[names.PARTITION] = Symbol(str(self.random.randrange(self.world.partitions(self.log))))
        if self.binding == "relay":
            address = None
        if properties:
            options["properties"] = properties
        self._requeue()
        self.link = connection.attach_sender(
            f"{self.name}-{self._link_number}",
            address,
            attached=self._attached,
            ended=self._link_ended,
            credited=self.push,
            outcome=self._outcome,
            **options,
        )

    def _attached(self, fields: Mapping[str, Any]) -> None:
        self.failures = 0
        if self.numbered:
            known = {str(key): value for key, value in (fields["properties"] or {}).items()}
            assert known.get(names.PRODUCER_ID) == self.name
            highest = known.get(names.PRODUCER_SEQUENCE)
            assert highest is None or int(highest) < self.made
        self.push()

    def _link_ended(self, condition: str | None) -> None:
        self.link = None
        self._requeue()
        self.reattach_later(condition)

    def _requeue(self) -> None:
        """Send events without an outcome again, in order."""
        self._failed = False
        self._dangling = None
        again = [] if self.presettled else [sent for part in self.in_flight.values() for sent in part]
        self.in_flight.clear()
        self.waiting = deque(sorted([*again, *self.waiting], key=lambda sent: sent.number))

    # -- sending

    def push(self) -> None:
        """Send as many events as credit and window allow."""
        link = self.link
        now_us = self.world.schedule.now_us
        if (
            link is None
            or not link.alive
            or not link.answered
            or link.refused
            or now_us < self._pause_until_us
        ):
            return
        while self.waiting and link.credit > 0 and len(self.in_flight) < self.window and not self._failed:
            if self.aborts and self.world.stormy and self._dangling is None and self.random.random() < 0.1:
                self._abort(link)
                continue
            if self._dangling is not None:
                return
            self._send(link)

    def _send(self, link: Sender) -> None:
        """Send the next event."""
        sent = self.waiting.popleft()
        self.world.ledger.send(sent, self._link_number)
        number = link.send(self._message(sent), settled=self.presettled, frame_bytes=FRAME_BYTES)
        if not self.presettled:
            self.in_flight[number] = [sent]

    def _message(self, sent: Sent) -> bytes:
        """The message of an event, with its number."""
        return with_annotations(sent.message, {names.SEQUENCE: ULong(sent.number)} if self.numbered else {})

    def _abort(self, link: Sender) -> None:
        """Begin a delivery, and think better of it: at once, or a while later."""
        number = link.begin()
        link.connection.transfer(link, number, b"\x00\x53\x75\xa0\xff" + bytes(100), more=True)
        wait_us = self.random.choice((0, 0, 10 * MS, SECOND))
        if not wait_us:
            link.connection.transfer(link, number, b"", aborted=True)
            return
        self._dangling = number

        def end() -> None:
            if link is self.link and link.alive and self._dangling == number:
                self._dangling = None
                link.connection.transfer(link, number, b"", aborted=True)
                self.push()

        self.world.schedule.after(wait_us, end)

    def _outcome(self, number: int, outcome: str | None, condition: str | None) -> None:
        events = self.in_flight.pop(number, None)
        if events is None:
            return
        if outcome == "accepted":
            for sent in events:
                self.world.ledger.accepted(sent.key)
        else:
            self._refused(events, outcome, condition)
        if self._failed and not self.in_flight:
            self._failed = False
        self.push()

    def _refused(self, events: list[Sent], outcome: str | None, condition: str | None) -> None:
        conditions = {names.RESOURCE_LIMIT_EXCEEDED}
        if self.log.startswith("made-"):  # the log may be deleted
            conditions |= {names.RESOURCE_DELETED, names.NOT_FOUND}
        logins: Logins | None = self.world.logins
        if logins is not None and (self.user or PLAIN_USER) in logins.once_revoked:
            conditions |= {names.UNAUTHORIZED_ACCESS}
        retried = outcome in ("modified", "released", None) or condition in conditions
        assert retried, f"{events[0].key} is {outcome}: {condition}"
        self._later(events)

    def _later(self, events: list[Sent]) -> None:
        """Send these events again, after a pause."""
        self.waiting.extend(events)
        self.waiting = deque(sorted(self.waiting, key=lambda each: each.number))
        self._failed = self._failed or self.numbered
        pause_us = self.random.randint(50, 500) * MS
        self._pause_until_us = self.world.schedule.now_us + pause_us
        self.world.schedule.after(pause_us, self.push)
