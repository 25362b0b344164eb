"""A producer with an id: numbers increase, events keep their numbers, and the node stores each event once,
through losses and kill -9.
"""

from collections.abc import Iterator, Sequence

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.client import (
    EARLIEST,
    Event,
    LinkRefusedError,
    ReleasedError,
    RetryPolicy,
    SendError,
    SequenceError,
    blocking,
    connect,
)
from amqp_streams.client.producing.numbering import Numbering, checked_id, share
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.errors import WireError
from amqp_streams.wire.sequences import SEQUENCE_MAX, sequence_of
from tests.amqp_streams.client.conftest import MemoryNode
from tests.amqp_streams.client.peer import ACCEPTED, MODIFIED
from tests.amqp_streams.client.running import RunningNode

BODY = b"\x00\x53\x75\xa0\x01x"
PATIENT = RetryPolicy(first_ms=20, wait_max_ms=200)


def entries(count: int) -> list[Entry]:
    return [Entry(None, BODY) for _ in range(count)]


def numbers(numbered: Sequence[Entry]) -> list[int | None]:
    return [sequence_of(entry.message) for entry in numbered]


# -- numbers


@given(
    st.lists(st.one_of(st.integers(1, 5), st.tuples(st.integers(0, 40), st.integers(1, 5))), max_size=8),
    st.integers(0, 60),
)
def test_numbers_rise_whichever_producer_gives_them(steps: list[int | tuple[int, int]], highest: int) -> None:
    """The producer numbers events itself, from a first number after the node's. A number that does not rise
    is refused and changes nothing.
    """
    numbering = Numbering()
    numbering.heard(None)
    last = -1
    for place, step in enumerate(steps):
        if place == 3:
            numbering.heard(highest)
        count, first = (step, None) if isinstance(step, int) else (step[1], step[0])
        given_out = entries(count)
        if first is not None and first <= last:
            with pytest.raises(SequenceError):
                numbering.number(given_out, first)
            assert numbers(given_out) == [None] * count
            continue
        numbering.number(given_out, first)
        told = numbers(given_out)
        assert all(number is not None and number > last for number in told)
        if first is not None:
            assert told[0] == first
        if place >= 3 and first is None:
            assert told[0] is not None
            assert told[0] > highest
        assert told == list(range(told[0] or 0, (told[0] or 0) + count))
        last = told[-1] or 0


def test_numbers_may_have_gaps() -> None:
    numbered = entries(3)
    Numbering().number(numbered, [5, 70, 71])
    assert numbers(numbered) == [5, 70, 71]


@pytest.mark.parametrize("sequences", [[1, 1], [2, 1], -1, SEQUENCE_MAX + 1, SEQUENCE_MAX])
def test_numbers_that_do_not_rise_or_are_too_large_are_refused(sequences: int | list[int]) -> None:
    numbering = Numbering()
    with pytest.raises(SequenceError):
        numbering.number(entries(2), sequences)
    numbering.number(entries(1), 0)


def test_a_share_of_numbers_is_that_of_its_events() -> None:
    assert share(None, 3, 2) is None
    assert share(10, 3, 2) == 13
    assert share([1, 2, 5, 9, 12, 13], 3, 2) == [9, 12]


@pytest.mark.parametrize("producer_id", ["", "é" * 129])
def test_an_id_that_cannot_be_one_is_refused_at_once(producer_id: str) -> None:
    with pytest.raises(ValueError, match="id"):
        checked_id(producer_id)


# -- against a node that does not know of it


async def test_a_node_that_does_not_know_idempotent_producers_is_not_sent_to(node: MemoryNode) -> None:
    async with connect("amqp://node") as client:
        with pytest.raises(LinkRefusedError, match="idempotent"):
            await client.producer("log", producer_id="p").open()
    assert not node.stored["log"]


async def test_an_ordinary_producer_takes_no_numbers(node: MemoryNode) -> None:
    async with connect("amqp://node") as client, client.producer("log") as producer:
        with pytest.raises(SequenceError):
            await producer.send(BODY, sequence=1)
        with pytest.raises(SequenceError):
            await producer.post_batch([BODY], sequence=1)
    assert not node.stored["log"]


# -- against one that fails


async def test_an_event_that_was_given_up_is_left_out_and_the_others_go_over_another_link(
    node: MemoryNode,
) -> None:
    """A node that waits for an event refuses all later events on that link: without a new link the producer
    would be stuck.
    """
    node.link_properties = {names.PRODUCER_ID: "p", names.PRODUCER_SEQUENCE: proton.ulong(9)}
    owed: set[int] = set()

    def outcome(message: bytes) -> object:
        sequence = sequence_of(message)
        assert sequence is not None
        if sequence == 12 or any(sequence > hole for hole in owed):
            owed.add(sequence)
            return MODIFIED
        return ACCEPTED

    node.outcome = outcome
    node.on_attach = lambda peer, link: owed.clear()
    retry = RetryPolicy(first_ms=0, attempts_max=2, jitter=lambda: 0.0)
    async with (
        connect("amqp://node", retry=retry) as client,
        client.producer("log", producer_id="p") as producer,
    ):
        pending = [await producer.post(Event(number)) for number in range(4)]
        with pytest.raises(ReleasedError):
            await pending[2]
        assert (await pending[3]).attempts > 1
        assert (await producer.send(Event(4))).attempts == 1
        with pytest.raises(SendError):
            await producer.flush()
    assert [sequence_of(message) for message in node.stored["log"]] == [10, 11, 13, 14]
    assert len(node.attaches) == 2


async def test_a_producer_desires_what_it_needs(node: MemoryNode) -> None:
    node.link_properties = {names.PRODUCER_ID: "p"}
    async with connect("amqp://node") as client, client.producer("log", producer_id="p"):
        (link,) = node.attaches
        link.remote_target.capabilities.rewind()
        assert link.remote_target.capabilities.next() is not None
        assert [str(one) for one in link.remote_target.capabilities.get_object().elements] == [
            names.CAPABILITY_IDEMPOTENT_PRODUCER,
            names.CAPABILITY_BATCHED_SENDS,
        ]
        assert {str(key): value for key, value in link.remote_properties.items()} == {names.PRODUCER_ID: "p"}


# -- against the real one


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path_factory.mktemp("node")).start()
    yield node
    node.stop()


async def stored(url: str, log: str, partition: int = 0) -> list[object]:
    async with (
        connect(url, retry=PATIENT) as client,
        client.consumer(log, partition=partition, start=EARLIEST) as consumer,
    ):
        found: list[object] = []
        while batch := await consumer.receive_retained(500, 5.0):
            found += [event.body for event in batch]
        return found


async def made(url: str, log: str, partitions: int = 1) -> None:
    async with connect(url) as client:
        await client.management.create_log(log, partitions=partitions)


async def test_a_producer_that_reconnects_continues_where_the_node_reports(running: RunningNode) -> None:
    await made(running.url, "back")
    for first in (0, 10, 20):
        async with connect(running.url) as client, client.producer("back", producer_id="p") as producer:
            for number in range(first, first + 10):
                await producer.post(Event(number))
    assert await stored(running.url, "back") == list(range(30))


async def test_events_repeated_under_their_numbers_are_stored_once(running: RunningNode) -> None:
    """As by a Spark task that was interrupted and repeated."""
    await made(running.url, "again")
    for end in (7, 20, 13):
        async with (
            connect(running.url) as client,
            client.producer("again", partition=0, producer_id="q/0") as producer,
        ):
            await producer.post_batch([Event(number) for number in range(end)], sequence=5 << 32)
            await producer.flush()
    assert await stored(running.url, "again") == list(range(20))


def test_the_blocking_face_numbers_events_in_the_order_of_its_calls(running: RunningNode) -> None:
    with blocking.connect(running.url) as client:
        client.management.create_log("blocking", partitions=1)
        with client.producer("blocking", producer_id="b") as producer:
            pending = [producer.post(Event(number)) for number in range(5)]
            producer.post_batch([Event(number) for number in range(5, 300)])
            producer.send(Event(300))
            assert all(one.result().attempts == 1 for one in pending)
            assert producer.post(Event(301), sequence=1000).result().attempts == 1
            with pytest.raises(SequenceError):
                producer.post(Event("late"), sequence=1000).result()
            with pytest.raises(WireError):
                producer.post(b"no message").result()
            with pytest.raises(SendError):
                producer.flush()
            producer.post_batch([Event("again")], sequence=[2000])
        with client.producer("blocking", producer_id="b") as producer:
            producer.post_batch([Event(number) for number in range(300)], sequence=0)
        with client.producer("blocking") as ordinary, pytest.raises(SequenceError):
            ordinary.post(Event(0), sequence=1)
        with client.consumer("blocking", start=EARLIEST) as consumer:
            found: list[object] = []
            while batch := consumer.receive_retained(500, 5.0):
                found += [event.body for event in batch]
    assert found == [*range(302), "again"]
