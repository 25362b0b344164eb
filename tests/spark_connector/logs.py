"""Logs of tests: created, filled, emptied and recreated through the engine's client."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from amqp_streams.client import Event
from amqp_streams.client.blocking import Client


def made(client: Client, partitions: int = 2, name: str | None = None, **settings: Any) -> str:
    """A log of a test's own."""
    name = name or f"log-{uuid4().hex}"
    client.management.create_log(name, partitions=partitions, **settings)
    return name


def send(
    client: Client, log: str, bodies: Sequence[object], partition: int | None = None, **fields: object
) -> None:
    """Send one event for each body. All events are durable when this returns. Without a partition, they are
    distributed round-robin.
    """
    with client.producer(log) as producer:
        for body in bodies:
            producer.post(Event(body, **fields), partition)  # type: ignore[arg-type]
        producer.flush()


def made_anew(client: Client, log: str, partitions: int = 2) -> None:
    """Delete a log, and create another one with its name."""
    client.management.delete_log(log)
    client.management.create_log(log, partitions=partitions)
