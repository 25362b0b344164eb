"""A log that a client deletes and creates again while others use it, and readers of it.

Checked here: an answered deletion or creation survives each crash; a link that is attached after an answered
deletion gets no event of the deleted log; no position of a reader in the deleted log applies to the new one.

Spec: docs/management.md, `event-log`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from amqp_streams import names
from amqp_streams.streams import management
from amqp_streams.wire.types import Symbol, UInt
from tests.simulation.machine.schedule import MS, SECOND
from tests.simulation.peers.client import Client
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.consumers import start_at
from tests.simulation.peers.frames import ACCEPTED, read_event
from tests.simulation.peers.links import Delivery, Receiver, Sender
from tests.simulation.peers.requests import answer_of, request

AGAIN: Final = "made-again"
_LATE_US: Final = 30 * SECOND
"""A request whose connection is lost may still arrive, or be processed, so much later."""
_WINDOW: Final = 10


class Keeper(Client):
    """Deletes and creates the log. `present`: the incarnation that must be there; None: unknown."""

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world, name)
        self.present: str | None = None
        self.gone: set[str] = set()
        """Incarnations that must not come back."""
        self._asked: tuple[str, str | None] | None = None
        self._unsure_until = (-1, 0)
        """A number of starts and a time: with more starts, or later, no request is on its way."""
        self._number = 0
        self._starts = 0
        """Of the node, when the connection was opened."""
        self._exists = False

    @property
    def done(self) -> bool:
        """Whether the log is there, in the calm period."""
        return self._exists

    def calm_down(self) -> None:
        super().calm_down()
        self._exists = False

    def may_be_gone(self, incarnation: str) -> bool:
        """Whether this incarnation may be deleted."""
        return self.present != incarnation

    # -- requests

    def connected(self, connection: Connection) -> None:
        self._starts = self.world.node.starts
        replies: Receiver = connection.attach_receiver(
            "replies",
            names.MANAGEMENT,
            target={"address": "me"},
            attached=lambda _fields: replies.grant(100),
            delivered=self._answered,
            ended=lambda _condition: self._lost(),
        )
        sender: Sender = connection.attach_sender(
            "requests", names.MANAGEMENT, credited=lambda: self._begin(sender)
        )

    def _lost(self) -> None:
        """The connection is lost: a request without an answer may have any effect."""
        if self._asked is not None:
            self._asked = None
            self.present = None
            self._unsure_until = self._starts, self.world.schedule.now_us + _LATE_US

    @property
    def _sure(self) -> bool:
        starts, until_us = self._unsure_until
        return self.world.node.starts > starts or self.world.schedule.now_us > until_us

    def _begin(self, link: Sender) -> None:
        link.credited = lambda: None
        self._later(link)

    def _later(self, link: Sender) -> None:
        wait_us = self.random.choice((50, 300, 1500)) * MS if self.world.stormy else SECOND
        self.world.schedule.after(wait_us, lambda: self._ask(link))

    def _ask(self, link: Sender) -> None:
        if not link.alive or link.refused or link.credit <= 0 or self._asked is not None:
            return
        node = self.world.node
        found = node.service.store.logs.get(AGAIN) if node.up else None
        deletes = self.world.stormy and found is not None and self.random.random() < 0.7
        self._asked = "DELETE" if deletes else "CREATE", found.incarnation if found is not None else None
        self._number += 1
        body: dict[str, Any] = {} if deletes else {"partitions": self.world.partitions(AGAIN)}
        asked = {names.OPERATION: self._asked[0], names.TYPE: names.LOG_TYPE, names.NAME: AGAIN}
        self.present = None if deletes else self.present
        self._sender = link
        link.send(request(asked, body, self._number))

    def _answered(self, delivery: Delivery) -> None:
        status, words, _value = answer_of(delivery.raw)
        assert self._asked is not None
        (operation, incarnation), self._asked = self._asked, None
        self.world.note(f"{operation} of {AGAIN}: {status} {words}")
        if not delivery.settled:
            delivery.link.settle(delivery.number, delivery.number, ACCEPTED)
        node = self.world.node
        found = node.service.store.logs.get(AGAIN) if node.up else None
        there = found.incarnation if found is not None else None
        self._exists = False
        if operation == "DELETE":
            assert status in (management.NO_CONTENT, management.NOT_FOUND, management.SERVER_ERROR), words
            if status == management.NO_CONTENT and incarnation is not None:
                assert there != incarnation, "a log whose deletion was answered is there"
                self.gone.add(incarnation)
        else:
            assert status in (management.CREATED, management.CONFLICT, management.SERVER_ERROR), words
            self._exists = status != management.SERVER_ERROR
            if self._exists and node.up and self._sure:
                assert there is not None, (
                    f"{AGAIN} does not exist, and its creation is answered with {status}"
                )
                assert there not in self.gone, f"incarnation {there} is there again"
                self.world.ledger.created(node.service.store)
                self.world.ledger.counts["recreated"] += self.present != there
                self.present = there
        self._later(self._sender)


class Follower(Client):
    """Reads all partitions of the log from its first event on.

    `mode`: "plain", "kept" (the node keeps its cursor) or "group" (a group with this member only).
    """

    def __init__(self, world: Any, name: str, mode: str) -> None:
        super().__init__(world, name)
        self.mode = mode
        self.settled: dict[tuple[str, int], set[int]] = {}
        """By incarnation and partition, what it has settled."""
        self.links: dict[int, Following] = {}

    def connected(self, connection: Connection) -> None:
        self.links.clear()
        for number in range(self.world.partitions(AGAIN) if self.mode == "group" else 1):
            self._attach(connection, number)

    def _attach(self, connection: Connection, number: int) -> None:
        following = self.links[number] = Following(self)
        source: dict[str, Any] = {"filter": start_at(names.OFFSET_EARLIEST)}
        options: dict[str, Any] = {}
        if self.mode == "group":
            options["properties"] = {names.CONSUMER_GROUP: self.name}
        if self.mode == "kept":
            source |= {"durable": UInt(2), "expiry-policy": Symbol("never")}
        again: Callable[[Connection], None] = partial(self._attach, number=number)
        following.link = connection.attach_receiver(
            f"{self.name}-{number}",
            AGAIN,
            source=source,
            attached=lambda _fields: following.begin(),
            ended=lambda condition: self.reattach_later(condition, again),
            delivered=following.delivered,
            **options,
        )

    @property
    def done(self) -> bool:
        """Whether it has everything of the log that is there now."""
        keeper = self.world.keeper
        if keeper.present is None:
            return False
        tracks = [track for track in self.world.ledger.of(AGAIN) if track.incarnation == keeper.present]
        return bool(tracks) and all(self._has(track.incarnation, track.index, track.end) for track in tracks)

    def _has(self, incarnation: str, index: int, end: int) -> bool:
        if self.mode != "plain":
            return self.first_unsettled(incarnation, index) >= end
        return not end or any(
            incarnation in link.incarnations and link.next.get(index, 0) >= end
            for link in self.links.values()
        )

    def first_unsettled(self, incarnation: str, index: int) -> int:
        """The first event that it has not settled."""
        settled = self.settled.get((incarnation, index), set())
        at = 0
        while at in settled:
            at += 1
        return at

    def why(self) -> str:
        links = [(link.incarnations, link.next, link.link.alive) for link in self.links.values()]
        ends = [(track.incarnation, track.index, track.end) for track in self.world.ledger.of(AGAIN)]
        return f"{super().why()} {self.mode} present {self.world.keeper.present} ends {ends} links {links}"


class Following:
    """One link of a follower. `incarnations`: those whose events it may have, until only one is left."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.link: Receiver
        self.next: dict[int, int] = {}
        self.incarnations: set[str] = set()
        self._gone = set(follower.world.keeper.gone)

    def begin(self) -> None:
        """The node has granted the link."""
        self.follower.failures = 0
        self.link.grant(_WINDOW)

    def delivered(self, delivery: Delivery) -> None:
        """The next event."""
        follower, event = self.follower, read_event(delivery.raw)
        follower.world.ledger.counts["delivered"] += 1
        found = {
            track.incarnation
            for track in follower.world.ledger.of(AGAIN)
            if track.index == event.partition
            and event.offset < track.end
            and track.records[event.offset][0].key == event.key
        }
        where = f"{event.key} at {event.partition}@{event.offset} on {self.link.name}"
        assert found, f"{where} is in no log"
        assert found - self._gone, f"{where} is of a log that was deleted before the link was attached"
        self.incarnations = found & self.incarnations if self.incarnations else found
        assert self.incarnations, f"{where} is of another log than the events before"
        expected = self.next.get(event.partition)
        if expected is not None:
            assert event.offset == expected, f"{where}: {expected} was expected"
        else:
            begins = [
                follower.first_unsettled(each, event.partition) if follower.mode != "plain" else 0
                for each in self.incarnations
            ]
            assert event.offset <= max(begins), f"{where}: the link begins there, and not before {begins}"
        self.next[event.partition] = event.offset + 1
        for each in self.incarnations:
            follower.settled.setdefault((each, event.partition), set()).add(event.offset)
        if not delivery.settled:
            self.link.settle(delivery.number, delivery.number, ACCEPTED)
        if self.link.credit <= _WINDOW // 2:
            self.link.grant(_WINDOW)
