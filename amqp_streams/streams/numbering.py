"""Idempotent producers: which events are stored, which are in flight, and which must be sent again first.

Laws: an event is `accepted` only when it, or an earlier one with its sequence, is durable. No gap arises
unnoticed: after a link's event was refused for no fault of its own, later events are refused until that one
is sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from operator import lt
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.storage.formats.producers import USER_SEPARATOR, victims
from amqp_streams.storage.ports import (
    PRODUCER_ID_BYTES_MAX,
    CommitDone,
    CommitQueue,
    Numbers,
    Partition,
    StoredLog,
)
from amqp_streams.streams.routing import partition_of_key
from amqp_streams.wire.types import Value


@dataclass(frozen=True, slots=True)
class Hole:
    """An event that a link must send again: the lowest refused sequence in a partition, and the error."""

    sequence: int
    error: PeerError | StorageError


@dataclass(slots=True, eq=False)
class Numbered:
    """The link of an idempotent producer.

    `home`: the partition of events without a hint, also of their repetitions.

    `producer`: its key in the store, see `stored_id`; `name`: the id that it gave.
    `highest`: its highest sequence in the log at the attach; None: unknown producer.
    """

    producer: str
    name: str
    incarnation: str
    home: int
    highest: int | None
    holes: dict[Partition, Hole] = field(default_factory=dict)
    attached: bool = True

    def owe(self, partition: Partition, sequence: int, error: PeerError | StorageError) -> None:
        """Record that an event was refused for no fault of its own."""
        hole = self.holes.get(partition)
        if hole is None or sequence < hole.sequence:
            self.holes[partition] = Hole(sequence, error)


@dataclass(slots=True, eq=False)
class Sifted:
    """What to do with a link's events for a partition, by their indices.

    `fresh`: append; `settled`: already durable; `earlier` and `current`: in the commit in flight and in the
    next one, and settled with it; `twins`: repetitions of fresh ones; `refused`: to be sent again after
    others.
    """

    fresh: Sequence[int]
    settled: list[int] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    current: list[int] = field(default_factory=list)
    twins: list[int] = field(default_factory=list)
    refused: list[tuple[int, PeerError | StorageError]] = field(default_factory=list)


def producer_id(value: Value) -> str:
    """The id in a link property.

    Raises:
        PeerError: it is not a string, or too long.
    """
    if (
        isinstance(value, str)
        and 0 < len(value.encode("utf-8", "surrogatepass")) <= PRODUCER_ID_BYTES_MAX
        and _is_unicode(value)
    ):
        return str(value)
    description = f"link property {names.PRODUCER_ID} must be a string of 1 to {PRODUCER_ID_BYTES_MAX} bytes"
    raise PeerError(names.INVALID_FIELD, description, {"field": "properties"})


def stored_id(user: str | None, producer: str) -> str:
    """The key of a user's producer: sequences of different users are independent.

    At most PRODUCER_ID_BYTES_MAX bytes.

    User names do not contain the separator. Anonymous producers have their id as key, as all had in earlier
    versions.
    """
    if user is None and USER_SEPARATOR not in producer:
        return producer
    joined = f"{user or ''}{USER_SEPARATOR}{producer}"
    if len(joined.encode()) <= PRODUCER_ID_BYTES_MAX:
        return joined
    return f"{USER_SEPARATOR}{USER_SEPARATOR}{sha256(joined.encode()).hexdigest()}"


def home_of(name: str, log: StoredLog) -> int:
    """The partition of the events without a hint of the producer that gave this id."""
    return partition_of_key(name, len(log.partitions))


class Numbering:
    """All links of idempotent producers, and their events in flight to the disk.

    `limit`: producers of a partition. At the limit, new ones replace those without a link or events for
    `expiry_ms`.
    """

    def __init__(self, *, limit: int, expiry_ms: int) -> None:
        self._limit: Final = limit
        self._expiry_ms: Final = expiry_ms
        self._links: Final[dict[tuple[str, str], int]] = {}
        """By the log's incarnation and the producer, how many links the producer has."""
        self._in_flight: Final[dict[Partition, dict[str, list[tuple[int, int]]]]] = {}
        """By partition and producer, its commits that have not ended, each with the highest sequence in it.
        At most two: the commit in flight and the next one.
        """
        self._lowest: Final[dict[tuple[CommitQueue, int], dict[tuple[Numbered, Partition], int]]] = {}
        """By queue, commit, link and partition, the lowest sequence in the commit. If the commit fails, the
        link must send again from there.
        """
        self._leaving: Final[dict[Partition, dict[str, int]]] = {}
        """By partition, producers that will be forgotten, each with the commit that removes it."""

    # -- links

    def attach(
        self,
        log: StoredLog,
        name: str,
        bound: Partition | None,
        *,
        user: str | None = None,
        home: int | None = None,
        durable: bool = False,
    ) -> Numbered:
        """Record that a link of this user's producer was attached. `home`: None: its name selects it.

        `durable`: events in flight may be refused, so they do not count in the highest number.
        """
        producer = stored_id(user, name)
        used = (log.incarnation, producer)
        self._links[used] = self._links.get(used, 0) + 1
        # By the producer's name: its repetitions reach the same partition, also after it attached again.
        if bound is not None:
            home = bound.index
        elif home is None:
            home = home_of(name, log)
        if durable:
            known = [partition.producers.get(producer) for partition in log.partitions]
            highest = max([-1 if each is None else each.sequence for each in known])
        else:
            highest = max([self._reached(partition, producer) for partition in log.partitions])
        return Numbered(producer, name, log.incarnation, home, highest if highest >= 0 else None)

    def detach(self, numbered: Numbered) -> None:
        """Record the end of a link. A second call changes nothing."""
        if numbered.attached:
            numbered.attached = False
            used = (numbered.incarnation, numbered.producer)
            self._links[used] -= 1
            if not self._links[used]:
                del self._links[used]

    # -- events

    def sift(self, numbered: Numbered, partition: Partition, sequences: Sequence[int], commit: int) -> Sifted:
        """Sort events by what to do with them, given their sequences in order.

        `commit`: the number of the next commit of the partition's queue.
        """
        highest = self._reached(partition, numbered.producer)
        # Hot path: all events are new and in order. `map` compares in C.
        if (
            sequences[0] > highest
            and partition not in numbered.holes
            and all(map(lt, sequences, sequences[1:]))
        ):
            return Sifted(range(len(sequences)))
        return self._sift_slowly(numbered, partition, sequences, commit, highest)

    def _sift_slowly(
        self, numbered: Numbered, partition: Partition, sequences: Sequence[int], commit: int, highest: int
    ) -> Sifted:
        reached = partition.producers.get(numbered.producer)
        durable = -1 if reached is None else reached.sequence
        commits = self._in_flight.get(partition, {}).get(numbered.producer, ())
        # Sequences up to `durable` are stored, those up to `in_flight` are in the commit in flight, and those
        # up to `pending` in the next commit.
        pending, in_flight = (
            highest,
            max([last for number, last in commits if number < commit], default=durable),
        )
        hole = numbered.holes.get(partition)
        fresh: list[int] = []
        sifted = Sifted(fresh)
        for index, sequence in enumerate(sequences):
            if sequence <= durable:
                sifted.settled.append(index)
            elif sequence <= in_flight:
                sifted.earlier.append(index)
            elif sequence <= pending:
                sifted.current.append(index)
            elif sequence <= highest:
                sifted.twins.append(index)
            elif hole is not None and sequence > hole.sequence:
                sifted.refused.append((index, hole.error))
                continue
            else:
                fresh.append(index)
                highest = sequence
            if hole is not None and sequence == hole.sequence:
                hole = None
                del numbered.holes[partition]
        # If their commit fails, this link must send them again as well, though another link appended them.
        self._share(numbered, partition, commit - 1, [sequences[index] for index in sifted.earlier])
        self._share(numbered, partition, commit, [sequences[index] for index in sifted.current])
        return sifted

    def admit(self, numbered: Numbered, partition: Partition, now_ms: int) -> Sequence[str]:
        """The producers to forget so that this one can be added, usually none. `now_ms`: the wall clock.

        Raises:
            PeerError: the limit is reached, and all producers are in use.
        """
        known, in_flight = partition.producers, self._in_flight.get(partition, {})
        if numbered.producer in known or numbered.producer in in_flight:
            return ()
        leaving = self._leaving.get(partition, {})

        def idle(producer: str) -> bool:
            return not (
                producer in leaving
                or producer in in_flight
                or (numbered.incarnation, producer) in self._links
            )

        coming = 1 + sum([producer not in known for producer in in_flight]) - len(leaving)
        gone = victims(
            known, idle=idle, coming=coming, limit=self._limit, expired_before_ms=now_ms - self._expiry_ms
        )
        if gone is None:
            description = (
                f"partition {partition.index} of log {partition.log!r} has {self._limit} producers, all in"
                " use: detach some"
            )
            raise PeerError(
                names.RESOURCE_LIMIT_EXCEEDED, f"{description}, or raise the node's limit 'producers'"
            )
        return gone

    def appended(self, numbered: Numbered, partition: Partition, numbers: Numbers, commit: int) -> None:
        """Events were added to the commit of this number."""
        in_flight = self._in_flight.setdefault(partition, {}).setdefault(numbered.producer, [])
        # One entry for each commit: the highest sequence is enough.
        if in_flight and in_flight[-1][0] == commit:
            in_flight.pop()
        in_flight.append((commit, numbers.sequences[-1]))
        self._share(numbered, partition, commit, numbers.sequences[:1])
        if numbers.forgotten:
            self._leaving.setdefault(partition, {}).update(dict.fromkeys(numbers.forgotten, commit))

    def committed(self, done: CommitDone) -> None:
        """Process the end of a commit: events that it could not store must be sent again."""
        for (numbered, partition), lowest in self._lowest.pop((done.queue, done.sequence), {}).items():
            failure = done.failures.get(partition)
            if failure is not None:
                numbered.owe(partition, lowest, failure)
            in_flight = self._in_flight.get(partition, {})
            left = [each for each in in_flight.pop(numbered.producer, ()) if each[0] > done.sequence]
            if left:
                in_flight[numbered.producer] = left
            elif not in_flight:
                self._in_flight.pop(partition, None)
            leaving = self._leaving.pop(partition, None)
            if leaving and (
                later := {producer: commit for producer, commit in leaving.items() if commit > done.sequence}
            ):
                self._leaving[partition] = later

    def _share(self, numbered: Numbered, partition: Partition, commit: int, sequences: Sequence[int]) -> None:
        """Record that these events of the link are in this commit."""
        if sequences:
            of_commit = self._lowest.setdefault((partition.queue, commit), {})
            lowest = min(sequences)
            of_commit[numbered, partition] = min(of_commit.get((numbered, partition), lowest), lowest)

    def _reached(self, partition: Partition, producer: str) -> int:
        """The highest sequence that is durable or in flight; -1 if none is."""
        in_flight = self._in_flight.get(partition)
        # What is in flight is higher than what is durable.
        if in_flight is not None and producer in in_flight:
            return in_flight[producer][-1][1]
        reached = partition.producers.get(producer)
        return -1 if reached is None else reached.sequence


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
