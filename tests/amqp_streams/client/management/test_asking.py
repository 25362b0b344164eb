"""Questions over links that stay, to nodes that refuse, vanish, or do not answer."""

import asyncio

import proton
import pytest

from amqp_streams import names
from amqp_streams.client import ClosedError, Event, LinkRefusedError, TimedOutError, connect
from amqp_streams.client.received import ReceivedEvent
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode


async def test_a_node_without_management_is_reported(node: MemoryNode) -> None:
    node.refused[names.MANAGEMENT] = proton.Condition(names.NOT_FOUND, "no such node")
    async with connect("amqp://node", retry=AT_ONCE) as client:
        with pytest.raises(LinkRefusedError, match="no such node"):
            await client.extents("log")


async def test_a_node_that_does_not_answer_is_given_up_and_nothing_waits_for_it(node: MemoryNode) -> None:
    async with connect("amqp://node", retry=AT_ONCE) as client:
        with pytest.raises(TimedOutError, match="log begin and end"):
            await client.extents("log", timeout=0.01)
        assert client._asker._line is None or not client._asker._line._waiting


async def test_a_waiting_caller_is_notified_of_the_end(node: MemoryNode) -> None:
    async with connect("amqp://node", retry=AT_ONCE) as client:
        waiting = asyncio.ensure_future(client.extents("log", timeout=5))
        for _ in range(50):
            await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await waiting


async def test_an_answer_that_cannot_be_read_or_comes_twice_is_skipped(node: MemoryNode) -> None:
    def answer(request: bytes) -> None:
        asked = ReceivedEvent(request)
        properties = {names.STATUS_CODES[0]: 200}
        reply = Event(
            {names.EXTENT_LOGS: []}, properties=properties, correlation_id=asked.correlation_id
        ).encode()
        node.outgoing[str(asked.reply_to)].extend([b"rubbish", reply, reply])

    node.answer = answer
    async with connect("amqp://node", retry=AT_ONCE) as client:
        assert await client.extents([]) == {}
        assert await client.extents([]) == {}
        assert len(node.streams) == 1
