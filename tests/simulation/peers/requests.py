"""Clients that send requests to `$info` and `$management`. The answers are compared with the true state."""

from collections.abc import Callable, Mapping
from typing import Any

from amqp_streams import names
from amqp_streams.streams import management
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    APPLICATION_PROPERTIES_HEAD,
    PROPERTIES_HEAD,
    VALUE,
    VALUE_HEAD,
    sections,
)
from amqp_streams.wire.types import Described
from tests.simulation.machine.logins import PLAIN_USER, Logins
from tests.simulation.machine.schedule import MS, SECOND
from tests.simulation.peers.client import Client
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.frames import ACCEPTED
from tests.simulation.peers.links import Delivery, Receiver, Sender

TOLD_BEFORE_MS = 500
"""An answer may be so old when it leaves: it is shared, and waits for its turn."""


class Asker(Client):
    """Requests the state of one log repeatedly, in two ways. `answers`: how many arrived."""

    def __init__(self, world: Any, name: str, log: str) -> None:
        super().__init__(world, name)
        self.log = log
        self.answers = {"info": 0, "extents": 0}
        self.wanted: int | None = None
        self._asked_ms: dict[str, int] = {}
        self._floor: dict[int, int] = {}
        self._sender: Sender | None = None
        self._number = 0
        self._operation = ""

    @property
    def done(self) -> bool:
        """Whether both ways were answered in the calm period."""
        if self.wanted is None:
            self.wanted = min(self.answers.values()) + 3
            self.answers = dict.fromkeys(self.answers, 0)
            self.wanted = 3
        return min(self.answers.values()) >= self.wanted

    def why(self) -> str:
        return f"{super().why()} answers {self.answers} asked {self._asked_ms}"

    def connected(self, connection: Connection) -> None:
        self._asked_ms.clear()
        self._floor.clear()
        info: Receiver = connection.attach_receiver(
            "info",
            self.log + names.INFO_SUFFIX,
            attached=lambda _fields: self._ask_info(info),
            delivered=self._informed,
            ended=self.reattach_later,
        )
        replies: Receiver = connection.attach_receiver(
            "replies",
            names.MANAGEMENT,
            target={"address": "me"},
            attached=lambda _fields: replies.grant(1),
            delivered=self._answered,
        )
        sender: Sender = connection.attach_sender(
            "requests", names.MANAGEMENT, credited=lambda: self._request(sender)
        )
        self._sender = sender

    def _ask_info(self, link: Receiver) -> None:
        self._asked_ms["info"] = self.world.schedule.now_ms
        link.grant(1)

    def _informed(self, delivery: Delivery) -> None:
        value = _value(delivery.raw)
        self.answers["info"] += 1
        for entry in value[names.INFO_PARTITIONS]:
            index = int(str(entry[names.INFO_PARTITION]))
            events = int(entry[names.INFO_EVENTS])
            latest = entry[names.INFO_LATEST_OFFSET]
            earliest = entry[names.INFO_EARLIEST_OFFSET]
            if latest is not None:
                self._true(index, int(str(earliest)), int(str(latest)) + 1, "info")
                assert events == int(str(latest)) + 1 - int(str(earliest))
            else:
                assert events == 0
        self._settle(delivery)
        link = delivery.link
        self._later(lambda: self._ask_info(link), link)

    def _request(self, link: Sender) -> None:
        if link.credit <= 0 or "extents" in self._asked_ms:
            return
        self._asked_ms["extents"] = self.world.schedule.now_ms
        self._number += 1
        self._operation = self.random.choice((names.EXTENTS, names.EXTENTS, "READ", "QUERY"))
        body: dict[str, Any] = {}
        if self._operation == names.EXTENTS:
            body[names.EXTENT_LOGS] = [self.log, self.log]
            body[names.EXTENT_MISSING_OK] = self.random.random() < 0.5
        asked = {names.OPERATION: self._operation, names.TYPE: names.LOG_TYPE}
        if self._operation == "READ":
            asked[names.NAME] = self.log
        link.send(request(asked, body, self._number))

    def _answered(self, delivery: Delivery) -> None:
        status, words, value = answer_of(delivery.raw)
        self.answers["extents"] += 1
        logins: Logins | None = self.world.logins
        if status == management.FORBIDDEN and logins is not None:
            assert (self.user or PLAIN_USER) in logins.once_revoked, words
            self._done(delivery)
            return
        assert status == management.OK, f"{self._operation} of {self.log} is answered with {status}: {words}"
        match self._operation:
            case names.EXTENTS:
                assert len(value[names.EXTENT_LOGS]) == 1, "a log that is asked for twice is told once"
                for log in value[names.EXTENT_LOGS]:
                    self._extents(log)
            case "READ":
                assert value["name"] == self.log
                assert value["partitions"] is not None
            case _:
                logs = [log["name"] for log in value["logs"]]
                found = self.log in logs or names.QUERY_NEXT in value or logins is not None
                assert found, f"{self.log} is not in {logs}"
        self._done(delivery)

    def _done(self, delivery: Delivery) -> None:
        self._settle(delivery)
        self._asked_ms.pop("extents", None)
        link, sender = delivery.link, self._sender

        def again() -> None:
            link.grant(1)
            if sender is not None and sender.alive:
                self._request(sender)

        self._later(again, link)

    def _extents(self, log: Mapping[str, Any]) -> None:
        for entry in log[names.INFO_PARTITIONS]:
            index = int(str(entry[names.INFO_PARTITION]))
            self._true(index, int(entry[names.EXTENT_EARLIEST]), int(entry[names.EXTENT_NEXT]), "extents")

    def _true(self, index: int, start: int, end: int, kind: str) -> None:
        track = self.world.ledger.current[self.log, index]
        asked_ms = self._asked_ms.get(kind, 0) - TOLD_BEFORE_MS
        assert start <= end
        assert track.end_at(asked_ms) <= end <= track.end, (
            f"{kind} says {end}: it was {track.end_at(asked_ms)} when it was asked for, and is {track.end}"
        )
        assert start <= track.first, (
            f"{kind} says that {index} begins at {start}, and it begins at {track.first}"
        )
        assert start >= self._floor.get(index, 0), "the start of a partition falls"

    def _settle(self, delivery: Delivery) -> None:
        if not delivery.settled:
            delivery.link.settle(delivery.number, delivery.number, ACCEPTED)

    def _later(self, call: Callable[[], None], link: Receiver) -> None:
        wait_us = self.random.choice((0, 20 * MS, 300 * MS, SECOND))
        self.world.schedule.after(wait_us, lambda: call() if link.alive else None)


def request(properties: Mapping[str, Any], body: Mapping[str, Any] | bytes, number: int) -> bytes:
    """Return a message to `$management` whose answer goes to `me`. `body`: bytes are encoded already."""
    return (
        PROPERTIES_HEAD
        + encode([f"r{number}", None, None, None, "me"])
        + APPLICATION_PROPERTIES_HEAD
        + encode(dict(properties))
        + VALUE_HEAD
        + (body if isinstance(body, bytes) else encode(dict(body)))
    )


def _value(raw: bytes) -> Any:
    for section in sections(raw):
        if section.code == VALUE:
            described, _ = decode(raw, section.start)
            assert isinstance(described, Described)
            return described.value
    raise AssertionError("an answer has a value")


def answer_of(raw: bytes) -> tuple[int, str, Any]:
    """Status, description and value of an answer of `$management`."""
    for section in sections(raw):
        if section.code == APPLICATION_PROPERTIES:
            described, _ = decode(raw, section.start)
            assert isinstance(described, Described)
            assert isinstance(described.value, dict)
            status, words = (
                described.value.get(name) for name in (names.STATUS_CODES[0], names.STATUS_DESCRIPTIONS[0])
            )
            return int(str(status)), str(words or ""), _value(raw)
    raise AssertionError("an answer has a status")
