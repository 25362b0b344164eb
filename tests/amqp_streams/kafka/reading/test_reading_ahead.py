"""What is read for a reader before it asks: the next records of a reader that reads on."""

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.kafka.reading.reads import READ_BYTES, WHOLE_BYTES, WHOLE_FROM
from amqp_streams.storage.ports import LATER
from tests.amqp_streams.kafka.reading.test_reads import SIZE, P, Threads, numbers

FAR = 1 << 40
PART = 30 * SIZE


def reading(consumers: int = 2, cache_bytes: int = 64 << 20, known_end: int = FAR) -> Threads:
    """A reader has got the first 60 of 100 records."""
    threads = Threads(consumers, cache_bytes, known_end)
    request = threads.request("reader")
    assert threads.read(request, 0) is LATER
    threads.end()
    for at in (0, 30):
        assert numbers(threads.read(request, at, bytes_max=PART)) == (at, at + 30)
    return threads


def test_a_consumer_reads_on_while_the_reader_takes_what_it_brought() -> None:
    threads = reading()
    assert [(load.start, load.at, load.size) for load in threads.loads] == [(100, 100, READ_BYTES)]
    request = threads.request("reader")
    assert numbers(threads.read(request, 60)) == (60, 100)
    assert len(threads.loads) == 1, "one load ahead, not more"
    threads.ready.clear()
    threads.end()
    assert threads.ready == [], "nobody waited"
    assert numbers(threads.read(request, 100, bytes_max=PART)) == (100, 130)
    assert threads.loads == [], "of several records the first ones alone may be all that is wanted"
    threads.read(request, 130, bytes_max=PART)
    assert [load.at for load in threads.loads] == [200]


def test_a_reader_that_arrives_earlier_waits_for_the_load_that_runs() -> None:
    threads = reading()
    first, other = threads.request("first"), threads.request("other")
    threads.ready.clear()
    assert threads.read(first, 100) is LATER
    assert threads.read(first, 100) is LATER
    assert len(threads.loads) == 1
    assert threads.read(other, 150) is LATER
    assert [load.at for load in threads.loads] == [100, 150], "another consumer is free"
    threads.end()
    assert threads.ready == ["first"]
    used = threads.reads.uses()["kafka_cache_bytes"].used
    assert numbers(threads.read(first, 100)) == (100, 200)
    assert threads.reads.uses()["kafka_cache_bytes"].used < used, "what was kept for it is not kept any more"


def test_an_error_of_a_load_ahead_is_for_a_reader_that_waits_only() -> None:
    threads = reading()
    threads.end(error=StorageError("away"))
    request = threads.request("reader")
    assert threads.read(request, 100) is LATER, "it was not its error"
    threads.end()
    assert numbers(threads.read(request, 100)) == (100, 200)
    assert [load.at for load in threads.loads] == [200]
    assert threads.read(request, 200) is LATER
    threads.end(error=StorageError("away"))
    with pytest.raises(StorageError, match="away"):
        threads.read(request, 200)


def test_nothing_is_read_ahead_behind_the_end_or_by_a_jump_or_while_another_reader_waits() -> None:
    assert reading(known_end=100).loads == [], "there is nothing"
    threads = Threads(consumers=1, known_end=FAR)
    request, other = threads.request("reader"), threads.request("other")
    assert threads.read(request, 0) is LATER
    threads.end()
    assert threads.read(other, 50_000) is LATER
    threads.end()
    assert numbers(threads.read(request, 0)) == (0, 100)
    assert threads.loads == [], "the consumer is elsewhere"
    threads = Threads(consumers=1, known_end=FAR)
    assert threads.read(request := threads.request("reader"), 0) is LATER
    assert threads.read(threads.request("one"), 50_000) is LATER
    assert threads.read(threads.request("two"), 90_000) is LATER
    threads.end()
    assert numbers(threads.read(request, 0)) == (0, 100)
    assert [load.at for load in threads.loads] == [50_000]
    stopped = Threads(known_end=FAR)
    assert stopped.read(request := stopped.request("reader"), 0) is LATER
    stopped.end()
    stopped.reads.stop()
    assert numbers(stopped.read(request, 0)) == (0, 100)
    assert stopped.loads == []


def test_what_readers_have_not_taken_leaves_no_room_to_read_ahead() -> None:
    threads = Threads(consumers=4, cache_bytes=4 << 20, known_end=FAR)
    slow = [threads.request(number) for number in range(3)]
    for number, request in enumerate(slow):
        assert threads.read(request, 10_000 * (number + 1)) is LATER
        threads.end(250)
    request = threads.request("reader")
    assert threads.read(request, 0) is LATER
    threads.end()
    assert numbers(threads.read(request, 0)) == (0, 100)
    assert threads.loads == []


def test_a_topic_that_is_gone_while_it_is_read_ahead_leaves_nothing() -> None:
    threads = reading()
    request = threads.request("reader")
    assert threads.read(request, 100) is LATER
    threads.reads.forget(P)
    threads.ready.clear()
    threads.end()
    assert threads.ready == ["reader"]
    assert threads.reads.uses()["kafka_cache_bytes"].used == 0
    assert threads.read(request, 100) is LATER, "it is read again"


def test_readers_of_two_partitions_read_ahead_with_a_consumer_each() -> None:
    threads = reading()
    request = threads.request("second")
    assert threads.read(request, 50_000) is LATER
    assert len(threads.loads) == 2
    threads.end()
    threads.end()
    assert numbers(threads.read(request, 50_000)) == (50_000, 50_100)
    assert [load.at for load in threads.loads] == [50_100]


def test_a_reader_that_reads_on_gets_all_that_one_read_brought_unless_others_wait() -> None:
    """A small part of a buffer is copied, and the whole buffer is not."""
    threads = Threads(consumers=1, known_end=0)
    assert threads.read(request := threads.request("reader"), 0) is LATER
    threads.end(READ_BYTES // SIZE)
    assert numbers(threads.read(request, 0, bytes_max=WHOLE_FROM)) == (0, 960)
    assert numbers(threads.read(request, 0, bytes_max=WHOLE_FROM - 1)) == (0, 127)
    waiting = [threads.request(number) for number in range(2)]
    for number, other in enumerate(waiting):
        assert threads.read(other, 10_000 * (number + 1)) is LATER
    assert numbers(threads.read(request, 0, bytes_max=WHOLE_FROM)) == (0, 128)
    threads.end(3000)
    threads.end(3000)
    assert numbers(threads.read(waiting[0], 10_000, bytes_max=WHOLE_FROM)) == (
        10_000,
        10_000 + WHOLE_BYTES // SIZE,
    )
