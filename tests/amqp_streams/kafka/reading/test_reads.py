"""Reads of old records: what is answered at once, what is kept, and that many readers get fair shares."""

from array import array
from dataclasses import dataclass, field
from statistics import median

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.kafka.reading.reads import _ANSWERED_AT_ONCE, READ_BYTES_MIN, Load, Reads
from amqp_streams.kafka.reading.spans import MISSING, Span
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest
from amqp_streams.wire.batched.packed import Packed

P = "p"
SIZE = 1024
WIDE = 1 << 20


def span(start: int, end: int) -> Span:
    """Records of `SIZE` bytes with all these numbers."""
    count = end - start
    messages = Packed(bytes(SIZE * count), range(0, SIZE * count + 1, SIZE))
    return Span(start, end, Chunk(start, array("q", bytes(8 * count)), bytes(count), messages))


class Threads:
    """Consumers whose loads end when the test says so. `known_end`: up to where they may read ahead."""

    def __init__(self, consumers: int = 2, cache_bytes: int = 64 << 20, known_end: int = 0) -> None:
        self.known_end = known_end
        self.loads: list[Load] = []
        self.ready: list[object] = []
        self.reads = Reads(self.loads.append, consumers, cache_bytes)

    def request(self, owner: object) -> ReadRequest:
        return ReadRequest(owner, lambda: self.ready.append(owner))

    def read(
        self, request: ReadRequest, at: int, end: int = 1 << 40, bytes_max: int = WIDE
    ) -> Chunk | Later | None:
        """As `Fetcher.read`."""
        while (found := self.reads.find(P, at, end, bytes_max)) is MISSING:
            if self.reads.ask(request, P, self.reads.uncovered(P, at)) is LATER:
                return LATER
        self.reads.taken(request, P, found, self.known_end)
        return found

    def end(self, count: int = 100, error: StorageError | None = None) -> Load:
        """The load that began first ends with so many records from the wanted one on."""
        load = self.loads.pop(0)
        load.span, load.error = (None if error else span(load.start, load.at + count)), error
        self.reads.ended(load)
        return load


def numbers(chunk: Chunk | Later | None) -> tuple[int, int]:
    assert isinstance(chunk, Chunk)
    return chunk.base, chunk.end


def test_a_read_waits_and_what_it_brought_serves_others_at_once() -> None:
    threads = Threads()
    first, other = threads.request("first"), threads.request("other")
    assert threads.read(first, 10) is LATER
    assert threads.read(first, 10) is LATER, "asked again, it waits for the same load"
    assert [(load.start, load.at) for load in threads.loads] == [(10, 10)]
    assert threads.reads.uses()["kafka_readers"] == (1, 2)
    threads.end()
    assert threads.ready == ["first"]
    assert numbers(threads.read(first, 10)) == (10, 110)
    assert numbers(threads.read(other, 50)) == (50, 110)
    assert (threads.loads, first.pending, other.pending) == ([], None, None)


def test_reads_whose_records_are_brought_do_not_wait_for_a_consumer_of_their_own() -> None:
    threads = Threads(consumers=1)
    requests = {at: threads.request(at) for at in (10, 20, 109, 110)}
    for at, request in requests.items():
        assert threads.read(request, at) is LATER
    threads.end()
    assert sorted(map(int, map(str, threads.ready))) == [10, 20, 109]
    assert [load.at for load in threads.loads] == [110]


def test_a_crowd_at_one_position_is_answered_in_steps_and_with_few_loads() -> None:
    threads = Threads(consumers=1)
    requests = [threads.request(number) for number in range(5000)]
    for request in requests:
        assert threads.read(request, 77) is LATER
    answered, loads = 0, 0
    while threads.loads:
        threads.end()
        assert len(threads.ready) - answered <= 2 * _ANSWERED_AT_ONCE + 1
        answered, loads = len(threads.ready), loads + 1
    assert answered == 5000
    assert loads <= 5000 // (2 * _ANSWERED_AT_ONCE) + 1
    assert all(numbers(threads.read(request, 77)) == (77, 177) for request in requests)


def test_a_consumer_reads_over_a_short_distance_and_jumps_over_a_long_one() -> None:
    threads = Threads(consumers=1)
    for at in (0, 300, 50_000):
        assert threads.read(threads.request(at), at) is LATER
    assert [threads.end().start, threads.end().start, threads.end().start] == [0, 100, 50_000]
    assert numbers(threads.read(threads.request("between"), 150)) == (150, 400), "what was read over is kept"


def test_what_was_read_for_a_request_is_kept_until_it_is_taken() -> None:
    """A cache for one read, whose records others displace before the reader has its turn."""
    threads = Threads(consumers=1, cache_bytes=400 << 10)
    slow = threads.request("slow")
    assert threads.read(slow, 0) is LATER
    threads.end(30)
    for at in range(10_000, 60_000, 10_000):
        quick = threads.request(at)
        assert threads.read(quick, at) is LATER
        threads.end(60)
        assert numbers(threads.read(quick, at)) == (at, at + 60)
    assert threads.reads.find(P, 0, WIDE, WIDE) is MISSING
    assert numbers(threads.read(slow, 0)) == (0, 30)
    assert (threads.loads, slow.pending) == ([], None)


def test_consumers_read_no_faster_than_readers_take() -> None:
    threads = Threads(consumers=4, cache_bytes=8 << 20)
    requests = [threads.request(number) for number in range(50)]
    for number, request in enumerate(requests):
        assert threads.read(request, number * 10_000) is LATER
    while len(threads.loads) > 1:
        threads.end(150)
    use = threads.reads.uses()["kafka_cache_bytes"]
    assert use.used <= use.limit
    assert len(threads.ready) < 15
    # One at a time they go on: who does not take must not stop the others for ever.
    while threads.loads:
        assert len(threads.loads) == 1
        threads.end(150)
        assert threads.reads.uses()["kafka_cache_bytes"].used <= use.limit
    assert len(threads.ready) == 50


def test_a_read_that_is_given_up_is_not_made_nor_answered_nor_kept() -> None:
    threads = Threads(consumers=1)
    running, waiting, kept = threads.request("running"), threads.request("waiting"), threads.request("kept")
    assert threads.read(running, 0) is LATER
    assert threads.read(waiting, 10_000) is LATER
    running.cancel()
    waiting.cancel()
    assert threads.read(kept, 20_000) is LATER
    threads.end()
    assert (threads.ready, [load.at for load in threads.loads]) == ([], [20_000])
    threads.end()
    held = threads.reads.uses()["kafka_cache_bytes"].used
    kept.cancel()
    assert threads.reads.uses()["kafka_cache_bytes"].used == held - span(0, 100).size


def test_a_read_of_another_number_replaces_the_one_before_it() -> None:
    threads = Threads(consumers=1)
    busy, moved = threads.request("busy"), threads.request("moved")
    assert threads.read(busy, 0) is LATER
    assert threads.read(moved, 10_000) is LATER
    assert threads.read(moved, 20_000) is LATER
    threads.end()
    assert [load.at for load in threads.loads] == [20_000]


def test_an_error_goes_to_its_reader_alone_and_the_next_read_tries_again() -> None:
    threads = Threads(consumers=1)
    one, other = threads.request("one"), threads.request("other")
    assert threads.read(one, 0) is LATER
    assert threads.read(other, 1) is LATER
    threads.end(error=StorageError("away"))
    with pytest.raises(StorageError, match="away"):
        threads.read(one, 0)
    assert threads.read(one, 0) is LATER
    threads.end()
    assert numbers(threads.read(other, 1)) == (1, 101)


def test_what_was_read_or_held_of_a_topic_that_is_gone_is_dropped() -> None:
    threads = Threads(consumers=2)
    held, running = threads.request("held"), threads.request("running")
    assert threads.read(held, 0) is LATER
    assert threads.read(running, 10_000) is LATER
    threads.end()
    threads.reads.forget(P)
    threads.end()
    assert threads.ready == ["held", "running"]
    assert threads.reads.uses()["kafka_cache_bytes"].used == 0
    for request, at in ((held, 0), (running, 10_000)):
        assert threads.read(request, at) is LATER, "not from the topic that is gone"
    assert len(threads.loads) == 2


def test_nothing_begins_after_the_stop() -> None:
    threads = Threads()
    threads.reads.stop()
    assert threads.read(threads.request("late"), 0) is LATER
    assert threads.loads == []


def test_the_more_reads_wait_the_less_each_of_them_brings_but_not_too_little() -> None:
    threads = Threads(consumers=1, cache_bytes=8 << 20)
    for number in range(2000):
        threads.read(threads.request(number), number * 10_000)
    sizes = [threads.end(10).size for _ in range(1990)]
    assert sizes[0] > sizes[1] == READ_BYTES_MIN
    assert sizes == [sizes[0], *sorted(sizes[1:])]


@dataclass(slots=True, eq=False)
class Reader:
    """Reads on as fast as it is served."""

    request: ReadRequest
    at: int
    got: int = 0
    woken: bool = True


@dataclass(slots=True)
class Machine:
    """Readers, consumers and an event loop with a time of their own, in microseconds.

    A load takes 10 ms for a jump and 1 ms for each 128 KiB. The loop serves the readers that are woken in
    turns, and takes 5 us for each record.
    """

    starts: list[int]
    consumers: int
    cache_bytes: int
    now: int = 0
    loads: list[tuple[int, int, Load]] = field(default_factory=list)
    nexts: dict[int, int] = field(default_factory=dict)

    def run(self, until: int) -> list[int]:
        """How many records each reader got."""
        reads = Reads(self.begin, self.consumers, self.cache_bytes)
        turns: list[Reader] = []
        readers = [Reader(ReadRequest(number, lambda: None), at) for number, at in enumerate(self.starts)]
        for reader in readers:
            reader.request.ready = lambda reader=reader: turns.append(reader)  # type: ignore[misc]  # bound
        turns += readers
        while self.now < until:
            for reader in turns[:]:
                turns.remove(reader)
                while (found := reads.find(P, reader.at, 1 << 40, 256 << 10)) is MISSING:
                    if reads.ask(reader.request, P, reads.uncovered(P, reader.at)) is LATER:
                        break
                else:
                    assert isinstance(found, Chunk)
                    reads.taken(reader.request, P, found, 1 << 40)
                    reader.at, reader.got = found.end, reader.got + len(found)
                    self.now += 5 * len(found)
                    turns.append(reader)
                self.end(reads)
            if not turns and self.loads:
                self.now = max(self.now, min(until for until, _, _ in self.loads))
            self.end(reads)
        return [reader.got for reader in readers]

    def begin(self, load: Load) -> None:
        jump = 0 if self.nexts.get(load.consumer) == load.start else 10_000
        end = load.at + load.size // SIZE
        load.span = span(load.start, end)
        self.nexts[load.consumer] = end
        self.loads.append((self.now + jump + 1000 * (end - load.start) // 128, len(self.loads), load))

    def end(self, reads: Reads) -> None:
        for entry in sorted(self.loads, key=lambda each: each[:2]):
            if entry[0] <= self.now:
                self.loads.remove(entry)
                reads.ended(entry[2])


@pytest.mark.parametrize(("readers", "gap"), [(8, 20_000), (60, 700), (60, 5000), (200, 5000)])
def test_many_readers_of_one_partition_get_fair_shares(readers: int, gap: int) -> None:
    """Whether each reader, or none, finds in memory what was read for another one."""
    machine = Machine([gap * number for number in range(readers)], consumers=8, cache_bytes=16 << 20)
    got = machine.run(6_000_000)
    assert min(got) >= median(got) / 2, sorted(got)
    again = Machine([gap * number for number in range(readers)], consumers=8, cache_bytes=16 << 20)
    assert again.run(6_000_000) == got
