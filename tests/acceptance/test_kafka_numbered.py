"""Idempotent producers on nodes on Kafka, as processes: each event is stored once, whatever happens."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from amqp_streams import names
from amqp_streams.client import Event, LinkError, RejectedError, SendError
from amqp_streams.client.blocking import Producer, connect
from examples.node import NodeProcess
from tests.acceptance.kafka_nodes import LOG, start

__all__ = ["start"]
PATIENCE_S = 90.0
PRODUCER = "meter-7"


def bodies(url: str, count: int) -> list[object]:
    """All events of the log with numbers, when at least `count` are there."""
    found: list[object] = []
    until = time.monotonic() + PATIENCE_S
    with connect(url) as client, client.consumer(LOG, start="earliest") as consumer:
        while len(found) < count and time.monotonic() < until:
            found += [event.body for event in consumer.receive(timeout=1)]
        found += [event.body for event in consumer.receive_retained(timeout=PATIENCE_S)]
    return found


def test_a_producer_goes_on_at_another_node_after_its_node_was_killed(
    start: Callable[..., NodeProcess],
) -> None:
    first, second = start("first"), start("second")
    with (
        connect(f"{first.url},{second.url}") as client,
        client.producer(LOG, producer_id=PRODUCER, window=8) as producer,
    ):
        for number in range(120):
            producer.post(Event(number))
            for at, node in ((40, first), (80, second)):
                if number == at:
                    assert node.process is not None
                    node.process.kill()
                    node.process.wait()
                    node.start()
        producer.flush(timeout=PATIENCE_S)
    assert bodies(second.url, 120) == list(range(120))


def closed_with_an_error() -> AbstractContextManager[None]:
    """The end of a producer tells once more why its link was closed."""
    return suppress(LinkError, SendError)


def send_until_stolen(producer: Producer) -> LinkError:
    """Send until the link is closed, which takes a moment. Nothing of it is accepted."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            producer.send(Event("too late"), timeout=PATIENCE_S)
        except LinkError as error:
            return error
        except RejectedError:
            continue
        break
    pytest.fail("an event of a producer that is at another node was accepted")


def test_a_later_attach_at_another_node_takes_the_producer_over(start: Callable[..., NodeProcess]) -> None:
    first, second = start("first"), start("second")
    with connect(first.url) as ours, connect(second.url) as theirs:
        with closed_with_an_error(), ours.producer(LOG, producer_id=PRODUCER) as early:
            early.send(Event(0))
            with theirs.producer(LOG, producer_id=PRODUCER) as late:
                stolen = send_until_stolen(early)
                assert stolen.condition == names.LINK_STOLEN
                assert "attached to another node" in str(stolen)
                # It goes on after the number that it was answered.
                late.send(Event(1))
        with ours.producer(LOG, producer_id=PRODUCER) as third:
            third.send(Event("repeated"), sequence=1)
        with ours.producer(LOG, producer_id=PRODUCER) as fourth:
            fourth.send(Event(2))
    assert bodies(first.url, 3) == [0, 1, 2]


def test_a_node_that_is_stopped_in_mid_transaction_writes_nothing_when_it_continues(
    start: Callable[..., NodeProcess],
) -> None:
    first, second = start("first"), start("second")
    with (
        connect(first.url) as ours,
        connect(second.url) as theirs,
        closed_with_an_error(),
        ours.producer(LOG, producer_id=PRODUCER, window=1000) as early,
    ):
        early.send(Event(0))
        for number in range(1, 200):
            early.post(Event(number))
        # Somewhere in a transaction, or between two.
        os.kill(first.pid, signal.SIGSTOP)
        try:
            with theirs.producer(LOG, producer_id=PRODUCER) as late, theirs.producer(LOG) as plain:
                for number in range(20):
                    late.send(Event(f"late-{number}"), timeout=PATIENCE_S)
                plain.send(Event("plain"), timeout=PATIENCE_S)
                # The transaction that was open does not hide what comes behind it.
                before = bodies(second.url, 22)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        assert send_until_stolen(early).condition == names.LINK_STOLEN
    after = bodies(second.url, len(before))
    # The plain event is in any partition.
    after.remove("plain")
    before.remove("plain")
    assert after == before
    count = len(before) - 20
    assert before == [*range(count), *(f"late-{number}" for number in range(20))]
