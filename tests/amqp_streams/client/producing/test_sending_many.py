"""Many events with one call, against a scripted node that takes single transfers only."""

import pytest

from amqp_streams.client import Event, RejectedError, SendError, SequenceError, TimedOutError, connect
from amqp_streams.client.producing.producer import NO_NUMBERS
from amqp_streams.client.received import ReceivedEvent
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.peer import ACCEPTED, REJECTED
from tests.amqp_streams.client.producing.test_producer import URL, bodies, settle_loop


async def test_a_node_without_batches_gets_single_transfers(node: MemoryNode) -> None:
    async with connect(URL) as client, client.producer("log", window=7, linger_ms=60_000) as producer:
        await producer.send_many([Event(number) for number in range(50)])
        assert (await producer.send(Event(50))).attempts == 1, "and nothing waits for others"
        await producer.send_many([])
    assert bodies(node) == list(range(51))


async def test_the_indexes_of_refused_events_are_those_of_the_call(node: MemoryNode) -> None:
    node.outcome = lambda message: REJECTED if ReceivedEvent(message).body in {3, 5} else ACCEPTED
    async with connect(URL) as client, client.producer("log") as producer:
        with pytest.raises(SendError, match="2 events were not accepted; the first, with index 3") as failed:
            await producer.send_many([Event(number) for number in range(8)])
        assert failed.value.indexes == (3, 5)
        assert [type(error) for _, error in failed.value.failures] == [RejectedError] * 2
        await producer.flush()  # which reports only events that no call waits for
    assert bodies(node) == [0, 1, 2, 4, 6, 7]


async def test_what_times_out_before_it_was_sent_is_not_sent_later(node: MemoryNode) -> None:
    node.credit = 0
    async with connect(URL, retry=AT_ONCE) as client:
        producer = client.producer("log")
        await producer.open()
        with pytest.raises(TimedOutError, match=r"waiting for outcomes took longer than 0\.01 s"):
            await producer.send_many([Event(1), Event(2)], timeout=0.01)
        node.attaches[-1].flow(10)
        node.work()
        await settle_loop()
        await producer.close()
    assert bodies(node) == []


async def test_numbers_need_a_producer_with_an_id(node: MemoryNode) -> None:
    async with connect(URL) as client, client.producer("log") as producer:
        with pytest.raises(SequenceError, match=NO_NUMBERS[:20]):
            await producer.send_many([Event(1)], sequence=4)
    assert bodies(node) == []


@pytest.mark.parametrize("size", [-1, (1 << 20) + 1])
async def test_the_size_of_a_batch_is_bounded(node: MemoryNode, size: int) -> None:
    async with connect(URL) as client:
        with pytest.raises(ValueError, match="batch_bytes must be from 0 to 1048576"):
            client.producer("log", batch_bytes=size)
    assert node.attaches == []
