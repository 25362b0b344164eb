"""Producers against a scripted node in memory."""

import asyncio
import contextlib
import re
from typing import Any

import proton
import pytest

from amqp_streams.client import (
    ClosedError,
    ConnectionLostError,
    Event,
    LinkError,
    LinkRefusedError,
    RejectedError,
    ReleasedError,
    RetryPolicy,
    SaslOptions,
    SendError,
    TimedOutError,
    blocking,
    connect,
)
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.wire.sections import target_partition
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.peer import ACCEPTED, MODIFIED, REJECTED, RELEASED

URL = "amqp://node"


def bodies(node: MemoryNode, log: str = "log") -> list[object]:
    return [ReceivedEvent(message).body for message in node.stored[log]]


async def settle_loop() -> None:
    """Run the event loop until nothing is ready."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_send_waits_for_accepted(node: MemoryNode) -> None:
    node.outcome = lambda message: None
    async with connect(URL) as client, client.producer("log") as producer:
        sending = asyncio.create_task(producer.send(Event(b"a", key="k")))
        await settle_loop()
        assert not sending.done()
        node.peer.settle_held()
        node.work()
        assert (await sending).attempts == 1
    assert bodies(node) == [b"a"]


async def test_posted_events_arrive_in_order_and_flush_waits_for_all(node: MemoryNode) -> None:
    async with connect(URL) as client, client.producer("log", window=7) as producer:
        pending = [await producer.post(b"\x00\x53\x77\x54" + bytes([number])) for number in range(20)]
        await producer.post_batch([Event(number) for number in range(20, 100)])
        await producer.flush()
        assert all(one.done for one in pending)
        assert [(await one).attempts for one in pending] == [1] * 20
    assert bodies(node) == list(range(100))


async def test_the_window_bounds_what_is_on_its_way(node: MemoryNode) -> None:
    node.outcome = lambda message: None
    async with connect(URL, retry=AT_ONCE) as client:
        producer = client.producer("log", window=5)
        await producer.open()
        posting = asyncio.create_task(producer.post_batch([Event(number) for number in range(20)]))
        await settle_loop()
        assert len(node.peer.held) == 5
        with pytest.raises(TimedOutError, match="room in the window"):
            await producer.post(Event(99), timeout=0)
        node.outcome = lambda message: ACCEPTED
        node.peer.settle_held()
        node.work()
        await posting
        await producer.close()
    assert bodies(node) == list(range(20))


async def test_bytes_bound_the_window_too(node: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqp_streams.client.producing.producer.WINDOW_BYTES_MAX", 10_000)
    node.outcome = lambda message: None
    async with connect(URL) as client:
        producer = client.producer("log", window=500)
        await producer.open()
        posting = asyncio.create_task(producer.post_batch([Event(bytes(3000))] * 20))
        await settle_loop()
        assert len(node.peer.held) == 4
        node.outcome = lambda message: ACCEPTED
        node.peer.settle_held()
        node.work()
        await posting
        await producer.close()
    assert len(node.stored["log"]) == 20


async def test_a_node_that_does_not_read_is_waited_for_without_turning_in_circles(node: MemoryNode) -> None:
    node.window, node.credit = 1 << 20, 1000
    async with connect(URL) as client:
        producer = client.producer("log", window=500)
        await producer.open()
        await producer.post_batch([Event(bytes(10_000))] * 400)
        await settle_loop()
        # What the loop has to do.
        assert len(asyncio.get_running_loop()._ready) == 0  # type: ignore[attr-defined]
        assert node.stored["log"] == []
        while len(node.stored["log"]) < 400:
            node.peer.read()
            node.work()
            await settle_loop()
        await producer.close()


async def test_a_partition_of_one_event_goes_into_its_delivery_annotations(node: MemoryNode) -> None:
    async with connect(URL) as client, client.producer("log") as producer:
        await producer.send(Event(b"a"), partition=3)
        await producer.post_batch([Event(b"b")], partition="1")
    assert [target_partition(message) for message in node.stored["log"]] == ["3", "1"]


async def test_a_bound_producer_asks_for_its_partition_when_it_attaches(node: MemoryNode) -> None:
    async with connect(URL) as client, client.producer("log", partition=3) as producer:
        await producer.send(b"\x00\x53\x75\xa0\x00")
    assert node.attaches[0].remote_properties == {"event-streams-partition": "3"}


async def test_a_rejected_event_raises_with_the_nodes_words(node: MemoryNode) -> None:
    node.outcome = lambda message: REJECTED
    node.condition = proton.Condition("amqp:decode-error", "no message")
    async with connect(URL) as client:
        async with client.producer("log") as producer:
            with pytest.raises(RejectedError, match="amqp:decode-error: no message"):
                await producer.send(Event(b"a"))
        with pytest.raises(SendError, match="2 events were not accepted") as caught:
            async with client.producer("log") as producer:
                await producer.post_batch([Event(1), Event(2)])
        assert [event for event, _ in caught.value.failures] == [Event(1), Event(2)]


async def test_a_released_event_is_sent_again_and_nothing_overtakes_it(node: MemoryNode) -> None:
    outcomes = iter([RELEASED, MODIFIED, ACCEPTED])
    node.outcome = lambda message: next(outcomes, ACCEPTED)
    node.credit = 1
    async with connect(URL, retry=AT_ONCE) as client, client.producer("log") as producer:
        first = await producer.post(Event(1))
        await producer.post(Event(2))
        assert (await first).attempts == 3
    assert bodies(node) == [1, 2]


async def test_an_event_released_too_often_is_an_error(node: MemoryNode) -> None:
    node.outcome = lambda message: RELEASED
    async with (
        connect(URL, retry=RetryPolicy(attempts_max=2, first_ms=0)) as client,
        client.producer("log") as producer,
    ):
        with pytest.raises(ReleasedError):
            await producer.send(Event(1))


async def test_after_a_loss_what_has_no_outcome_is_sent_again_in_order(node: MemoryNode) -> None:
    node.outcome = lambda message: None
    async with connect(URL, retry=AT_ONCE) as client, client.producer("log", window=10) as producer:
        for number in range(10):
            await producer.post(Event(number))
        await settle_loop()
        held = node.peer.held
        assert len(held) == 10
        for delivery, message, address in held[:4]:
            node.peer.settle(delivery, message, address, ACCEPTED)
        node.work()
        node.outcome = lambda message: ACCEPTED
        node.unreachable = 3
        node.lose()
        await producer.flush()
    assert bodies(node) == list(range(10))
    assert len(node.asked) == 5


async def test_acceptance_lost_with_the_connection_stores_an_event_twice_and_loses_none(
    node: MemoryNode,
) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.producer("log") as producer:
        await producer.send(Event(0))
        node.streams[-1].pump = lambda: None  # type: ignore[method-assign]  # the node's answers are lost
        pending = await producer.post(Event(1))
        await settle_loop()
        assert bodies(node) == [0, 1]
        node.lose()
        assert (await pending).attempts == 2
    assert bodies(node) == [0, 1, 1]


async def test_when_no_connection_comes_back_everything_posted_fails(node: MemoryNode) -> None:
    node.outcome = lambda message: None
    async with connect(URL, retry=RetryPolicy(attempts_max=3, first_ms=0)) as client:
        producer = client.producer("log")
        await producer.open()
        pending = await producer.post(Event(1))
        node.unreachable = 1000
        node.lose()
        with pytest.raises(ConnectionLostError, match="refused"):
            await pending
        with pytest.raises(SendError):
            await producer.flush()
        with pytest.raises(ConnectionLostError):
            await producer.send(Event(2))
    assert len(node.asked) == 4


@pytest.mark.parametrize("null_termini", [True, False])
async def test_a_refused_attach_is_raised_at_once(node: MemoryNode, null_termini: bool) -> None:
    node.null_termini = null_termini
    node.refused["log"] = proton.Condition("amqp:not-found", "no such log")
    async with connect(URL, retry=AT_ONCE) as client:
        with pytest.raises(LinkRefusedError, match="no such log"):
            async with client.producer("log"):
                pass
    assert len(node.attaches) == 1


@pytest.mark.parametrize(
    ("condition", "again"), [("amqp:link:detach-forced", True), ("amqp:link:stolen", False)]
)
async def test_a_detach_is_repaired_by_a_new_attach_only_if_that_can_help(
    node: MemoryNode, condition: str, again: bool
) -> None:
    async with connect(URL, retry=AT_ONCE) as client:
        producer = client.producer("log")
        await producer.open()
        link = node.attaches[0]
        link.condition = proton.Condition(condition)
        link.close()
        node.work()
        if again:
            await producer.send(Event(1))
        else:
            with pytest.raises(LinkError, match=condition):
                await producer.send(Event(1))
        assert len(node.attaches) == 1 + again


async def test_an_event_beyond_the_nodes_limit_is_rejected_here_and_the_others_go(node: MemoryNode) -> None:
    node.max_message_size = 100
    async with connect(URL) as client:
        producer = client.producer("log")
        await producer.open()
        await producer.post_batch([Event(b"a"), Event(bytes(200)), Event(b"b")])
        with pytest.raises(SendError, match="message-size-exceeded"):
            await producer.close()
    assert bodies(node) == [b"a", b"b"]


async def test_a_send_that_is_cancelled_before_it_went_out_is_not_sent(node: MemoryNode) -> None:
    node.credit = 0
    async with connect(URL) as client:
        producer = client.producer("log")
        await producer.open()
        sending = asyncio.create_task(producer.send(Event("cancelled")))
        late = asyncio.create_task(producer.send(Event("late"), timeout=0))
        await settle_loop()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(TimedOutError):
            await late
        await producer.post(Event("sent"))
        node.attaches[0].flow(10)
        node.work()
        await producer.close()
    assert bodies(node) == ["sent"]


async def test_a_closed_producer_says_so(node: MemoryNode) -> None:
    async with connect(URL) as client:
        producer = client.producer("log")
        with pytest.raises(ClosedError):
            await producer.send(Event(1))
        async with producer:
            pass
        with pytest.raises(ClosedError):
            await producer.open()
        with pytest.raises(ClosedError):
            await producer.post(Event(1))
        with pytest.raises(ClosedError):
            await producer.post_batch([Event(1)])


async def test_a_value_that_is_not_an_event_is_a_type_error(node: MemoryNode) -> None:
    async with connect(URL) as client, client.producer("log") as producer:
        with pytest.raises(TypeError, match="str cannot be sent"):
            await producer.send("text")  # type: ignore[arg-type]  # the point
    assert bodies(node) == []


async def test_an_exception_in_the_block_leaves_without_waiting_for_outcomes(node: MemoryNode) -> None:
    node.outcome = lambda message: None
    async with connect(URL) as client:
        pending = None
        with contextlib.suppress(KeyError):
            async with client.producer("log") as producer:
                pending = await producer.post(Event(1))
                raise KeyError
        assert pending is not None
        with pytest.raises(ClosedError):
            await pending


FULL = "amqp:resource-limit-exceeded: the disk is full"


@pytest.fixture
def full(node: MemoryNode) -> MemoryNode:
    node.outcome, node.condition = (
        lambda message: REJECTED,
        proton.Condition("amqp:resource-limit-exceeded", "the disk is full"),
    )
    return node


async def test_a_timeout_says_what_the_node_said(full: MemoryNode) -> None:
    async with connect(URL, retry=RetryPolicy(first_ms=1)) as client:
        producer = client.producer("log", window=1)
        await producer.open()
        await producer.post(Event(1))
        with pytest.raises(TimedOutError, match=rf"flushing took longer than 0.05 s: {FULL}"):
            await producer.flush(timeout=0.05)
        with pytest.raises(
            TimedOutError, match=rf"waiting for room in the window took longer than 0.05 s: {FULL}"
        ):
            await producer.post(Event(2), timeout=0.05)
        full.outcome = lambda message: ACCEPTED
        await producer.flush()
        full.outcome = lambda message: REJECTED
        with pytest.raises(TimedOutError, match=rf"waiting for an outcome took longer than 0.05 s: {FULL}"):
            await producer.send(Event(3), timeout=0.05)
        full.outcome = lambda message: None
        with pytest.raises(TimedOutError, match=r"took longer than 0\.05 s: amqp:res"):
            await producer.send(Event(3), timeout=0.05)
        with contextlib.suppress(TimedOutError):
            await producer.close(timeout=0)


async def test_a_timeout_says_why_the_connection_failed(node: MemoryNode) -> None:
    async with connect(URL, retry=RetryPolicy(first_ms=1)) as client, client.producer("log") as producer:
        node.unreachable = 1_000_000
        node.lose()
        with pytest.raises(
            TimedOutError, match=r"waiting for an outcome took longer than 0\.05 s: amqp://node:5672: refused"
        ):
            await producer.send(Event(1), timeout=0.05)
        node.unreachable = 0


def test_the_blocking_face_says_what_the_node_said(full: MemoryNode) -> None:
    with blocking.connect(URL, retry=RetryPolicy(first_ms=1)) as client:
        producer = client.producer("log", window=1)
        producer.__enter__()
        pending = producer.post(Event(1))
        with pytest.raises(TimedOutError, match=FULL):
            pending.result(timeout=0.05)
        with pytest.raises(TimedOutError, match=FULL):
            producer.post(Event(2), timeout=0.05)
        full.outcome = lambda message: ACCEPTED
        assert pending.result().attempts > 1
        producer.close()


async def test_clients_producers_and_consumers_say_what_they_are(node: MemoryNode) -> None:
    async with connect("amqp://ann:secret@node", sasl=SaslOptions(plain_without_tls=True)) as client:
        assert repr(client) == "<Client of amqp://node:5672, connected>"
        producer = client.producer("log", partition=3)
        assert repr(producer) == "<Producer for 'log' partition 3, not attached, 0 events without an outcome>"
        async with producer, client.consumer("log") as consumer:
            assert repr(producer) == "<Producer for 'log' partition 3, attached, 0 events without an outcome>"
            assert repr(consumer) == "<Consumer of 'log', attached>"
        assert (
            repr(client.group_consumer("log", "g"))
            == "<GroupConsumer of 'log' in group 'g', partitions none>"
        )


@pytest.mark.parametrize(
    ("given", "shown"),
    [("text", "Event('text')"), ({"a": 1}, "Event({'a': 1})"), ("x" * 99, "Event(…)"), (None, "Event(…)")],
)
async def test_a_value_that_is_not_an_event_is_refused_with_the_way_to_send_it(
    node: MemoryNode, given: Any, shown: str
) -> None:
    async with connect(URL) as client, client.producer("log") as producer:
        with pytest.raises(
            TypeError,
            match=(
                f"cannot be sent: give {re.escape(shown)}, a ReceivedEvent, or the bytes of an AMQP message"
            ),
        ):
            await producer.send(given)
