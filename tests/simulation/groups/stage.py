"""Replaces the server and the machine under a node: it carries out effects, writes with delays, fails and
crashes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from amqp_streams import names
from amqp_streams.config import GroupSettings, LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import Node
from amqp_streams.storage.ports import CommitDone, Partition
from amqp_streams.streams.attach import AttachRequest, Closed, Consuming, Denied, Granted, Leave, Pending
from amqp_streams.streams.consuming.reader import Run
from amqp_streams.testing import MemoryStore
from tests.simulation.groups.ledger import Ledger, Link
from tests.simulation.groups.schedule import Schedule

NOW = 1_700_000_000_000
MESSAGE = b"\x00\x53\x75\xa0\x01x"


class Peer(Protocol):
    """The owner of links."""

    def ready(self, link: Link) -> None:
        """The link may be used, or there is more to read on it."""

    def ended(self, link: Link, error: PeerError | None) -> None:
        """The link has ended, or was never granted. None: the node or the connection has ended."""


class Stage:
    """One log node, up or down."""

    def __init__(self, schedule: Schedule, random: Random, partitions: int, settings: GroupSettings) -> None:
        self.schedule = schedule
        self.random = random
        self.settings = settings
        self.ledger = Ledger()
        self.store = MemoryStore()
        self.log = self.store.create("log", LogSettings(partitions=partitions), incarnation="i")
        self.store.on_commit = self._committed
        self.links: dict[Link, Peer] = {}
        self.generation = 0
        self.up = False
        self.calm = False
        self.start()

    # -- the process

    def start(self) -> None:
        """Start with the state on the disk, unless the node already runs."""
        if self.up:
            return
        self.generation += 1
        generation = self.generation
        self.node = Node(self.store, sync="always", new_id=lambda: "x", groups=self.settings)
        states = self.store.states
        states.on_written = lambda number, failure: self.node.state_written(
            number, failure, self.schedule.now_ms
        )
        states.defer = self._write_soon
        self.up = True
        self.schedule.every(100, self._tick, while_=lambda: self.generation == generation)
        self.schedule.every(
            self.settings.cursor_flush_ms, self._flush, while_=lambda: self.generation == generation
        )

    def crash(self) -> None:
        """End the process: everything that is not on the disk is lost, and all links."""
        self.up = False
        self.generation += 1
        self.ledger.crashed()
        self.store.states = self.store.states.survivors()  # type: ignore[misc]  # what the next process opens
        self._lose_all()

    def stop(self) -> None:
        """Stop in order: cursors that moved are written."""
        for link in list(self.links):
            self.lose(link)
        self._flush()
        while self.store.states.waiting:
            self._end_writes()
        self.generation += 1
        self.up = False

    def _lose_all(self) -> None:
        links, self.links = self.links, {}
        for link, peer in links.items():
            link.alive = False
            peer.ended(link, None)

    # -- links

    def attach(self, peer: Peer, request: AttachRequest) -> Link | None:
        """Attach a link. Returns None if it was refused, and the peer was notified."""
        if not self.up:
            return None
        rival, told = self._rival(request)
        answer: object
        try:
            answer = self.node.attach(request, self.schedule.now_ms)
        except PeerError as error:
            answer = error
        self._carry_out()
        if isinstance(answer, PeerError):
            return None
        assert isinstance(answer, Consuming | Pending)
        assert not rival or int(str(request.properties.get(names.EPOCH, 0))) > told, (
            "an active link yields to greater epochs only"
        )
        link = Link(request, answer)
        self.links[link] = peer
        if isinstance(answer, Consuming):
            self._granted(link)
        return link

    def _rival(self, request: AttachRequest) -> tuple[bool, int]:
        """Return whether the partition has an active link of another member in the group, and the last epoch
        that was reported to it.
        """
        owned = (
            str(request.properties.get(names.CONSUMER_GROUP)),
            int(str(request.properties.get(names.PARTITION, -1))),
        )
        owner = self.ledger.owners.get(owned)
        return owner is not None and owner.request.container != request.container, self.ledger.epochs.get(
            owned, 0
        )

    def read(self, link: Link, most: int) -> int:
        """Deliver to a link, at most so many; returns how many."""
        run = self.node.next_run(link.grant, most, NOW)
        if run is None:
            return 0
        assert isinstance(run, Run)
        self.ledger.delivered(link, run.partition.index, run.first, run.count)
        return run.count

    def settle(self, link: Link, records: Sequence[tuple[int, int]]) -> None:
        """A peer is done with these; it may be too late."""
        for index, number in records:
            self.node.settled(link.grant, index, number)
            self.ledger.settled(link, index, number)
        if link.leaving and link.alive and not link.unsettled:
            self.lose(link)

    def lose(self, link: Link, error: PeerError | None = None) -> None:
        """The link ends, from whichever side."""
        peer = self.links.pop(link, None)
        if peer is None:
            return
        self.ledger.ended(link)
        self.node.detach(link.answer, self.schedule.now_ms)
        self._carry_out()
        peer.ended(link, error)

    def append(self, partition: Partition, count: int) -> None:
        """Producers sent something."""
        partition.append([MESSAGE] * count, bytes(count), NOW)
        self.store.commit()

    # -- what the node wants

    def _carry_out(self) -> None:
        for effect in self.node.take_effects():
            match effect:
                case Granted(pending, grant):
                    link = self._known(pending)
                    link.answer = grant
                    self._granted(link)
                case Denied(answer, error) | Closed(answer, error):
                    assert isinstance(answer, Consuming | Pending)
                    link = self._known(answer)
                    self.ledger.counts["stolen"] += isinstance(effect, Closed)
                    self.ledger.ended(link)
                    peer = self.links.pop(link)
                    self.schedule.after(0, partial(peer.ended, link, error))
                case Leave(grant, error, within_ms):
                    self.ledger.counts["left"] += 1
                    link = self._known(grant)
                    link.leaving = True
                    wait_ms = within_ms if link.unsettled else 0
                    self.schedule.after(wait_ms, partial(self.lose, link, error))

    def _known(self, answer: Consuming | Pending) -> Link:
        (link,) = [link for link in self.links if link.answer is answer]
        return link

    def _granted(self, link: Link) -> None:
        self.ledger.granted(link)
        self.schedule.after(0, partial(self._tell, link))

    def _tell(self, link: Link) -> None:
        """There may be something to read."""
        if link in self.links:
            self.links[link].ready(link)

    def _tick(self) -> None:
        self.node.tick(self.schedule.now_ms)
        self._carry_out()

    def _flush(self) -> None:
        self.node.flush_cursors(NOW + self.schedule.now_ms)
        self.ledger.flushed()

    def _committed(self, done: CommitDone) -> None:
        if self.up:
            for consumer in self.node.committed(done, self.log.partitions):
                self.schedule.after(0, partial(self._tell, self._known(consumer)))

    # -- the disk

    def _write_soon(self, _complete: Callable[[], object]) -> None:
        generation = self.generation
        delay_ms = self.random.choice((0, 1, 2, 5, 5, 20, 300)) if not self.calm else 1
        self.schedule.after(delay_ms, lambda: self._end_writes() if self.generation == generation else None)

    def _end_writes(self) -> None:
        states = self.store.states
        if not states.waiting:
            return
        if not self.calm and self.random.random() < 0.03:
            states.fail(StorageError("no"))
        else:
            self.ledger.written()
        states.complete()
        self._carry_out()
