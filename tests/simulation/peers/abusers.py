"""Clients that misbehave. Nothing is expected of them; their neighbours must not be affected."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from amqp_streams import names
from amqp_streams.wire.codec import encode
from amqp_streams.wire.types import ULong, Value
from tests.simulation.machine.schedule import MS, SECOND
from tests.simulation.peers.client import Client
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.frames import ACCEPTED
from tests.simulation.peers.links import Delivery, Receiver, Sender
from tests.simulation.peers.requests import answer_of, request


class Abuser(Client):
    """A client that is not waited for. It continues in the calm period, so the others must complete their
    work in spite of it.
    """

    abuser = True

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world, name, user="user-mallory")


class Hoarder(Abuser):
    """Begins messages that it never finishes, on several links, and holds on to them."""

    def connected(self, connection: Connection) -> None:
        for number, size in enumerate(self._sizes()):
            link = connection.attach_sender(
                f"hoard-{number}",
                self.world.any_log(),
                attached=lambda fields: None,
                ended=self.reattach_later,
            )
            link.credited = lambda link=link, size=size: self._begin(link, size)  # type: ignore[misc]

    def _sizes(self) -> list[int]:
        """Of its messages: often so large that nothing is left for the messages of others."""
        if self.random.random() < 0.5:
            return [self.random.choice((1000, 10_000, 60_000)) for _ in range(self.random.choice((1, 3, 6)))]
        limits = self.world.node.settings.limits
        left, largest = max(limits.pending_bytes, limits.message_bytes) - 100, limits.message_bytes - 100
        sizes = [largest] * (left // largest)
        return [*sizes, left - sum(sizes)] if left > sum(sizes) else sizes

    def _begin(self, link: Sender, size: int) -> None:
        link.credited = lambda: None
        number = link.begin()
        block = min(link.connection.peer_frame_bytes - 64, 60_000)
        head = b"\x00\x53\x75\xb0\x00\x10\x00\x00"
        for at in range(0, size, block):
            part = bytes(min(block, size - at))
            link.connection.transfer(link, number, head + part[8:] if not at else part, more=True)


class Greedy(Abuser):
    """Takes all deliveries, and neither reads nor settles them. Requests far too much credit."""

    def connected(self, connection: Connection) -> None:
        link: Receiver = connection.attach_receiver(
            "greedy",
            self.world.any_log(),
            attached=lambda _fields: self._grant(link),
            ended=self.reattach_later,
        )

    def _grant(self, link: Receiver) -> None:
        chance = self.random.random()
        if chance < 0.4:
            link.credit = (1 << 32) - 1
            link.connection.write_flow(link)
            starts = self.world.node.starts
            self.world.schedule.after(3 * SECOND, lambda: self._require_end(link, starts))
            return
        link.grant(100_000, echo=True)
        if chance > 0.5 and link.connection.wire is not None:
            link.connection.wire.client_reads = False

    def _require_end(self, link: Receiver, starts: int) -> None:
        """Check that a node that cannot count this much credit refuses it."""
        connection, node = link.connection, self.world.node
        if connection.alive and connection.wire is not None and node.up and node.starts == starts:
            heard = connection.wire.client_reads and not connection.wire.troubled
            assert not (link.alive and heard), "a link with too much credit is left without a word"


class Asking(Abuser):
    """Sends very many and invalid requests to `$management`, and does not read the answers."""

    def connected(self, connection: Connection) -> None:
        self._number = 0
        replies: Receiver = connection.attach_receiver(
            "replies",
            names.MANAGEMENT,
            target={"address": "me"},
            attached=lambda _fields: replies.grant(self.random.choice((0, 3, 1000))),
            delivered=self._answered,
        )
        sender = connection.attach_sender("requests", names.MANAGEMENT)
        sender.credited = lambda: self._ask(sender)

    def _answered(self, delivery: Delivery) -> None:
        """However strange a request is, the node has an answer: only its disk may fail."""
        _status, words, _value = answer_of(delivery.raw)
        assert not words.startswith("the node "), f"a request is answered with {words!r}"
        if not delivery.settled:
            delivery.link.settle(delivery.number, delivery.number, ACCEPTED)

    def _ask(self, link: Sender) -> None:
        link.credited = lambda: None
        most = 1000 if self.world.plan.large else 50
        for _ in range(min(link.credit, self.random.choice((1, 10, 100)), most - self._number)):
            self._number += 1
            operation, kind, name, body = self._question()
            properties = {names.OPERATION: operation, names.TYPE: kind, names.NAME: name}
            link.send(request(properties, body, self._number))
        self.world.schedule.after(500 * MS, lambda: self._ask(link) if link.alive else None)

    def _question(self) -> tuple[str, str, Value, dict[Any, Any] | bytes]:
        random, log = self.random, self.world.any_log()
        chance = random.random()
        if chance < 0.4:
            return names.EXTENTS, names.LOG_TYPE, None, _extents(log, random.choice((10, 300)))
        if chance < 0.6:
            return "QUERY", random.choice((names.LOG_TYPE, names.CURSOR_TYPE, names.GROUP_TYPE)), None, {}
        if chance < 0.7:
            return (
                "CREATE",
                names.LOG_TYPE,
                f"made-{random.randrange(2)}",
                {"partitions": random.randint(1, 3)} | (self._settings() if random.random() < 0.3 else {}),
            )
        if chance < 0.75:
            return "DELETE", names.LOG_TYPE, f"made-{random.randrange(2)}", {}
        if chance < 0.9:
            made = f"made-{random.randrange(2)}"
            return "UPDATE", names.LOG_TYPE, made, self._settings()
        return random.choice(("READ", "NONSENSE")), random.choice((names.LOG_TYPE, "nothing")), log, {}

    def _settings(self) -> dict[Any, Any]:
        """Settings of a log: ordinary, extreme and invalid values."""
        random = self.random
        chosen = random.sample(
            (names.INFO_RETENTION_MS, names.INFO_RETENTION_BYTES, names.SEGMENT_BYTES, names.SEGMENT_MS),
            random.choice((1, 1, 2)),
        )
        return {
            name: ULong(random.choice((0, 1 << 21, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1)))
            for name in chosen
        }


@lru_cache(100)
def _extents(log: str, count: int) -> bytes:
    """The encoded body of a request for one extent many times. A large run sends thousands."""
    return encode({names.EXTENT_LOGS: [log] * count, names.INFO_PARTITIONS: ["0"] * count})


class Rude(Abuser):
    """Sends bytes that are not AMQP, or connects and sends nothing."""

    def connected(self, connection: Connection) -> None:
        chance = self.random.random()
        link = connection.attach_sender("rude", self.world.any_log(), ended=self.reattach_later)
        wait_us = self.random.randint(1, 2000) * MS
        if chance < 0.5:
            self.world.schedule.after(wait_us, lambda: connection.write(self.random.randbytes(40)))
        elif chance < 0.7:
            self.world.schedule.after(wait_us, lambda: link.detach(closed=False))
        else:
            connection.attach_receiver("nul", self.world.any_log() + "\0x", attached=_require_refusal)


def _require_refusal(_fields: Mapping[str, Any]) -> None:
    raise AssertionError("a name with a NUL is the name of something else")


ABUSERS = (Hoarder, Greedy, Asking, Rude)
