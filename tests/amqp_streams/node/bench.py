"""A node for tests: with its store, its states, its clock, and its effects."""

from itertools import count
from typing import Any

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import Node
from amqp_streams.policy import Redirect
from amqp_streams.storage.ports import CommitDone, Partition
from amqp_streams.streams.attach import AttachRequest, Consuming, Denied, Effect, Granted, Pending
from amqp_streams.streams.consuming.reader import Passed, Run
from amqp_streams.streams.management import Request
from amqp_streams.streams.redirects import Redirects
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import Symbol, Value

NOW = 1_700_000_000_000
EARLIEST: dict[str, Value] = {names.FILTER_DELIVERY_ANNOTATIONS: {names.OFFSET: Symbol("@earliest")}}

_NAMES = count(1)


def attach(address: str | None = "temps", *, consumer: bool = False, **options: Any) -> AttachRequest:
    """An attach of one container's, under a name that no other has unless it is given."""
    named = {"link": f"link-{next(_NAMES)}", "container": "container"} | options
    return AttachRequest(consumer=consumer, address=address, **named)


def member(
    group: str = "g", *, partition: int | None = None, epoch: object = None, **options: Any
) -> AttachRequest:
    """An attach of a receiver in a consumer group."""
    wanted = {
        names.CONSUMER_GROUP: group,
        names.PARTITION: None if partition is None else Symbol(str(partition)),
        names.EPOCH: epoch,
    }
    properties = {name: value for name, value in wanted.items() if value not in (None, "")}
    return attach(consumer=True, properties=properties, **options)


def elsewhere(*partitions: int) -> Redirects:
    """Return redirects of these partitions of `temps`, or of the whole log, to another container."""
    return Redirects([Redirect(log="temps", partitions=partitions or None, host="other.example", port=5672)])


class Bench:
    """A node over a memory store with the log `temps`.

    `now_ms` is the monotonic clock; writes of states end when the test says so.
    """

    def __init__(
        self,
        *,
        partitions: int = 2,
        groups: GroupSettings | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        self.store = MemoryStore()
        self.ended: list[CommitDone] = []
        self.now_ms = 1000
        self._ids = count(1)
        self._options: dict[str, Any] = {"groups": groups, "limits": limits, **options}
        self.node = self._start()
        self.log = self.node.create("temps", LogSettings(partitions=partitions))

    def _start(self) -> Node:
        node = Node(self.store, sync="always", new_id=lambda: f"id{next(self._ids)}", **self._options)
        self.store.on_commit = self.ended.append
        self.store.states.on_written = lambda number, failure: node.state_written(
            number, failure, self.now_ms
        )
        return node

    def restart(self) -> None:
        """The process is killed and restarted: states that were not on the disk are lost."""
        # A store has one set of them for its life.
        self.store.states = self.store.states.survivors()  # type: ignore[misc]
        self.node = self._start()

    def complete(self, failure: StorageError | None = None) -> list[Effect]:
        """End the writes of states, and return the effects that follow."""
        if failure is not None:
            self.store.states.fail(failure)
        self.store.states.complete()
        return self.node.take_effects()

    def append(self, *indices: int, now_ms: int = NOW) -> set[Consuming]:
        """One event to each of these partitions; the consumers that were woken."""
        partitions: list[Partition] = [self.log.partitions[index] for index in indices]
        for partition in partitions:
            partition.append([b"\x00\x53\x75\xa0\x01x"], b"\0", now_ms)
        self.store.commit()
        return set(self.node.committed(self.ended[-1], partitions))

    # -- links

    def consume(self, request: AttachRequest | None = None, **options: Any) -> Consuming:
        """A consumer that is granted at once, or when the state that it waits for is on the disk."""
        link = self.attach(request or attach(consumer=True, **options))
        if isinstance(link, Pending):
            effects = [*self.complete(), *self.complete()]  # its epoch is written first, then its cursor
            granted = [each for each in effects if isinstance(each, Granted) and each.pending is link]
            assert len(granted) == 1, "it is granted once, as soon as the disk has what there is to write"
            return granted[0].grant
        assert isinstance(link, Consuming)
        return link

    def attach(self, request: AttachRequest) -> object:
        """Attach now, and return the answer."""
        return self.node.attach(request, self.now_ms)

    def detach(self, link: Any, *, closed: bool = False) -> list[Effect]:
        """Detach now, and return the effects that follow."""
        self.node.detach(link, self.now_ms, closed=closed)
        return self.node.take_effects()

    def tick(self, ms: int = 0) -> list[Effect]:
        """Advance the clock, and return the effects that follow."""
        self.now_ms += ms
        self.node.tick(self.now_ms)
        return self.node.take_effects()

    def refusal(self, request: AttachRequest) -> PeerError:
        """Return why an attach is refused, at once or later."""
        try:
            link = self.attach(request)
        except PeerError as error:
            return error
        assert isinstance(link, Pending), "it was granted"
        denied = [each.error for each in self.complete() if isinstance(each, Denied) and each.pending is link]
        assert len(denied) == 1
        return denied[0]

    def read(self, consumer: Consuming, count_max: int = 1000) -> list[tuple[int, int]]:
        """Partition and number of each event that there is for it, so many at most."""
        got: list[tuple[int, int]] = []
        while len(got) < count_max and (run := self.node.next_run(consumer, count_max - len(got))):
            if isinstance(run, Run):
                got += [(run.partition.index, run.first + index) for index in range(run.count)]
            assert isinstance(run, Run | Passed)
        return got

    def settle(self, consumer: Consuming, *records: tuple[int, int]) -> None:
        """Accept these records."""
        for partition, number in records:
            self.node.settled(consumer, partition, number)

    def flush(self) -> None:
        """Cursors go to the disk."""
        self.node.flush_cursors(NOW)
        self.store.states.complete()

    def manage(
        self, operation: str, name: str = "", type_: str = names.LOG_TYPE, *, log: str = "", **body: Value
    ) -> tuple[int, str, Any]:
        """A request; underscores in the names of its entries are hyphens. The body is what a client reads."""
        settings: dict[Value, Value] = {key.replace("_", "-"): value for key, value in body.items()}
        answer = self.node.manage(Request(operation, type_, name, settings, "me", 1, log=log))
        return answer.status, answer.description, decode(encode(answer.body))[0]
