"""Events: what was sent, what was accepted, and the contents of each partition, for the whole run.

Checked here: accepted events are visible, and visible events stay, through each crash; an offset always means
one event, for each reader; each stored event is as it was sent, at most as often as it was sent, and numbered
events are stored once; events of one link keep their order; times do not decrease; retention removes nothing
too early.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amqp_streams.storage import Severity
from amqp_streams.storage.ports import Partition, Store, StoredLog
from tests.simulation.machine.schedule import Schedule
from tests.simulation.peers.frames import Event, key_of, without_header

READ_BYTES = 1 << 20


@dataclass(slots=True)
class Sent:
    """An event that a producer has sent. `message`: as the node stores it. `link`: of its first sending."""

    key: str
    log: str
    message: bytes
    numbered: bool
    properties: dict[str, Any]
    producer: str
    number: int
    link: int = 0
    times: int = 0
    accepted: bool = False
    ordered: bool = True
    """Its first sending decides its place behind other events of the link."""
    before: "Sent | None" = None
    """The event in front of this one, for the same partition, in the only batch that was sent with it."""
    stored: list[tuple[str, int, int]] = field(default_factory=list)
    """Where it is: incarnation of the log, partition and offset."""


@dataclass(slots=True)
class Track:
    """A partition: `records` from offset 0 on, including those that retention removed."""

    log: str
    incarnation: str
    index: int
    retention_ms: int | None
    start: int = 0
    records: list[tuple[Sent, int]] = field(default_factory=list)
    seen_ms: list[int] = field(default_factory=list)
    """When each record became visible, in true time."""
    partition: Partition | None = None
    """As the process that runs has it."""
    producers: set[str] = field(default_factory=set)
    """The idempotent producers that it remembers."""
    forgotten: set[str] = field(default_factory=set)
    """Those that it has forgotten: their events count as new."""

    @property
    def first(self) -> int:
        """The earliest event that retention has left, now."""
        return self.start if self.partition is None else max(self.start, self.partition.start)

    @property
    def end(self) -> int:
        return len(self.records)

    def end_at(self, now_ms: int) -> int:
        """Its end at a time in the past."""
        return bisect_right(self.seen_ms, now_ms)


class Ledger:
    """All events of a run."""

    def __init__(self, schedule: Schedule, wall_ms: Callable[[], int]) -> None:
        self.sent: dict[str, Sent] = {}
        self.tracks: dict[tuple[str, str, int], Track] = {}
        self.current: dict[tuple[str, int], Track] = {}
        self.may_be_gone: Callable[[str, str], bool] = lambda name, _: name.startswith("made-")
        """Whether clients may have deleted a log: its name and incarnation."""
        self.clock_jumped = False
        names = ("accepted", "visible", "delivered", "refused", "compressed", "recreated", "strangers")
        self.counts = dict.fromkeys(names, 0)
        self._schedule = schedule
        self._wall_ms = wall_ms
        self._order: dict[tuple[str | int, int, str], int] = {}

    def of(self, log: str) -> list[Track]:
        """The partitions of all logs of this name that existed."""
        return [track for track in self.tracks.values() if track.log == log]

    # -- producers

    def send(self, sent: Sent, link: int) -> None:
        """A producer sends this, on this link."""
        known = self.sent.setdefault(sent.key, sent)
        known.link = known.link or link
        known.times += 1
        known.before = None

    def send_batch(self, batch: list[Sent], link: int, partition: Callable[[Sent], object]) -> None:
        """A producer sends these events in one batch. `partition`: what decides where an event goes."""
        last: dict[object, Sent] = {}
        for sent in batch:
            self.send(sent, link)
            if sent.times == 1:
                sent.before = last.get(partition(sent))
            last[partition(sent)] = sent

    def not_stored(self, sent: Sent, *, ordered: bool) -> None:
        """The node promised that it stored nothing of the last transfer with this event.

        `ordered`: neither does it store what the link has sent since then.
        """
        sent.ordered = sent.ordered and ordered
        sent.times -= 1
        sent.before = None
        if not sent.times:
            sent.link = 0
        most = min(1, sent.times) if sent.numbered else sent.times
        assert len(sent.stored) <= most, f"{sent.key} is stored, and its batch was rejected or released"

    def accepted(self, key: str) -> None:
        """The node accepted this event."""
        sent = self.sent[key]
        assert sent.stored or self.may_be_gone(sent.log, ""), f"{key} is accepted, and is not there"
        self.counts["accepted"] += not sent.accepted
        sent.accepted = True

    # -- the store

    def opened(self, store: Store) -> None:
        """A process has opened the store: everything that was visible must be present."""
        findings = [each for each in getattr(store, "findings", ()) if each.severity is Severity.DAMAGE]
        assert not findings, f"damage that nobody did: {findings}"
        for (name, incarnation, index), track in self.tracks.items():
            stored = store.logs.get(name)
            if self.may_be_gone(name, incarnation):
                continue
            assert stored is not None, f"log {name} is gone"
            assert stored.incarnation == incarnation, f"log {name} is another one"
            partition = stored.partitions[index]
            assert partition.start <= track.start or not partition.end, (
                f"{name}/{index} begins at {partition.start}, it was {track.start}"
            )
            assert partition.end >= track.end, (
                f"{name}/{index} ends at {partition.end}, and events up to {track.end} were visible"
            )
            track.start = partition.start
        for stored in store.logs.values():
            for partition in stored.partitions:
                self._compare(stored, partition)
                self.visible(stored, partition)

    def created(self, store: Store) -> None:
        """There may be logs that were not there before."""
        for stored in store.logs.values():
            for partition in stored.partitions:
                self._track(stored, partition)

    def visible(self, log: StoredLog, partition: Partition) -> None:
        """The end of a partition has moved."""
        track = self._track(log, partition)
        at = track.end
        assert partition.end >= at, "the end of a partition falls"
        while at < partition.end:
            chunk = partition.read(at, READ_BYTES)
            assert chunk is not None
            assert chunk.base == at
            for message, timestamp in zip(chunk.messages, chunk.timestamps, strict=True):
                self._add(track, message, timestamp)
            at += len(chunk)
        # A key in the store may have the name of the user before the producer's.
        self._notice_forgotten(track, {key.rpartition("\x1f")[2] for key in partition.producers})

    def _notice_forgotten(self, track: Track, producers: set[str]) -> None:
        """A clock that jumps ahead makes producers look idle for days, so they are forgotten."""
        gone = track.producers - producers
        assert self.clock_jumped or not gone, f"{track.log}/{track.index} has forgotten {gone}"
        track.producers = producers
        track.forgotten |= gone
        for producer in gone:
            self._order.pop((producer, track.index, track.incarnation), None)

    def _compare(self, log: StoredLog, partition: Partition) -> None:
        track = self._track(log, partition)
        at = partition.start
        while at < min(track.end, partition.end):
            chunk = partition.read(at, READ_BYTES)
            assert chunk is not None
            for offset, message, timestamp in zip(
                range(chunk.base, track.end), chunk.messages, chunk.timestamps, strict=False
            ):
                sent, told_ms = track.records[offset]
                assert (message, timestamp) == (sent.message, told_ms), (
                    f"{track.log}/{track.index}@{offset} changed"
                )
            at = chunk.base + len(chunk)

    def _track(self, log: StoredLog, partition: Partition) -> Track:
        key = (log.name, log.incarnation, partition.index)
        track = self.tracks.get(key)
        if track is None:
            track = self.tracks[key] = Track(
                log.name, log.incarnation, partition.index, log.settings.retention_ms
            )
        self.current[log.name, partition.index] = track
        track.partition = partition
        return track

    def _add(self, track: Track, message: bytes, timestamp_ms: int) -> None:
        offset = track.end
        sent = self.sent.get(key_of(message))
        assert sent is not None, f"{track.log}/{track.index}@{offset} was never sent: {message[:60]!r}"
        assert message == sent.message, f"{sent.key} is stored with other bytes"
        assert sent.log == track.log, f"{sent.key} is in log {track.log}"
        sent.stored.append((track.incarnation, track.index, offset))
        once = sent.numbered and sent.producer not in track.forgotten
        copies = sum(incarnation == track.incarnation for incarnation, _, _ in sent.stored)
        assert copies <= (1 if once else sent.times), f"{sent.key} is stored too often"
        if sent.times == 1 and sent.before is not None:
            assert sent.before.stored, f"{sent.key} is stored without {sent.before.key} of its batch"
        assert not track.records or track.records[-1][1] <= timestamp_ms, "times do not decrease"
        if (sent.times == 1 and sent.ordered) or sent.numbered:
            sequence = (sent.producer if sent.numbered else sent.link, track.index, track.incarnation)
            last = self._order.get(sequence, -1)
            assert last < sent.number, f"{sent.key} is stored behind {last} of its producer"
            self._order[sequence] = sent.number
        track.records.append((sent, timestamp_ms))
        track.seen_ms.append(self._schedule.now_ms)
        self.counts["visible"] += 1

    def retained(self, store: Store) -> None:
        """Retention may have removed events, but none too early."""
        for name, stored in store.logs.items():
            for partition in () if self.may_be_gone(name, stored.incarnation) else stored.partitions:
                track = self._track(stored, partition)
                assert partition.start >= track.start, "the start of a partition falls"
                if partition.start > track.start:
                    age_ms = self._wall_ms() - track.records[partition.start - 1][1]
                    assert (
                        track.retention_ms is None or self.clock_jumped or age_ms + 50 >= track.retention_ms
                    ), f"{name}/{partition.index}: an event was removed after {age_ms} ms"
                    track.start = partition.start

    # -- consumers

    def delivered(self, log: str, event: Event, *, again: bool = False) -> Sent:
        """A consumer got this. `again`: another time, so that its header has a delivery-count."""
        track = self.current[log, event.partition]
        where = f"{log}/{event.partition}@{event.offset}"
        assert event.offset < track.end, f"{where} is delivered before it is durable"
        sent, timestamp_ms = track.records[event.offset]
        assert event.key == sent.key, f"{where} was {sent.key}, and is {event.key}"
        same = (
            without_header(event.message) == without_header(sent.message)
            if again
            else event.message == sent.message
        )
        assert same, f"{where} is delivered with other bytes"
        assert event.timestamp_ms == timestamp_ms, f"{where} has two times"
        self.counts["delivered"] += 1
        return sent
