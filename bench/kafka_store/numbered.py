"""Idempotent producers beside plain ones, on the same node: `python -m bench.kafka_store --parts numbered`.

One by one: each event waits for the outcome of the one before. In batches: the window of the client is full.
The program is our Python client, so the figures in batches are its own rather than those of the node.
"""

import statistics
import time
import uuid
from dataclasses import dataclass, field
from typing import Final

from amqp_streams.client import Event
from amqp_streams.client.blocking import Producer, connect

ROUNDS: Final = 3
ONE_BY_ONE: Final = 200
IN_BATCHES: Final = 30_000
ATTACHES: Final = 20
_BODY: Final = b"x" * 100
WAIT_S: Final = 120.0


@dataclass(slots=True)
class Sent:
    """What a kind of producer did: events a second, and the times of single events and of attaches in ms."""

    one_by_one: list[float] = field(default_factory=list)
    in_batches: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)
    attaches_ms: list[float] = field(default_factory=list)


def measure(url: str, log: str) -> dict[str, Sent]:
    """Measure both kinds, in turns."""
    found = {"plain": Sent(), "numbered": Sent()}
    with connect(url) as client:
        for number in range(ROUNDS):
            for kind, sent in list(found.items())[:: 1 if number % 2 == 0 else -1]:
                name = uuid.uuid4().hex if kind == "numbered" else None
                with client.producer(log, producer_id=name, window=10_000) as producer:
                    producer.send(Event(_BODY))
                    _send(producer, sent)
        for kind, sent in found.items():
            for _ in range(ATTACHES):
                name, began = uuid.uuid4().hex if kind == "numbered" else None, time.perf_counter()
                with client.producer(log, producer_id=name):
                    sent.attaches_ms.append((time.perf_counter() - began) * 1000)
    return found


def _send(producer: Producer, sent: Sent) -> None:
    began = time.perf_counter()
    for _ in range(ONE_BY_ONE):
        at = time.perf_counter()
        producer.send(Event(_BODY), timeout=WAIT_S)
        sent.waits_ms.append((time.perf_counter() - at) * 1000)
    sent.one_by_one.append(ONE_BY_ONE / (time.perf_counter() - began))
    began = time.perf_counter()
    for _ in range(IN_BATCHES):
        producer.post(Event(_BODY), timeout=WAIT_S)
    producer.flush(timeout=WAIT_S)
    sent.in_batches.append(IN_BATCHES / (time.perf_counter() - began))


def table(found: dict[str, Sent]) -> list[str]:
    """The figures as a table in Markdown."""
    lines = [
        "",
        "| producer | one by one, events/s | p50 | p99 | in batches, events/s | attach |",
        "|---|---|---|---|---|---|",
    ]
    for kind, sent in found.items():
        waits = sorted(sent.waits_ms)
        cells = (
            kind,
            f"{statistics.median(sent.one_by_one):,.0f}",
            f"{waits[len(waits) // 2]:.1f} ms",
            f"{waits[len(waits) * 99 // 100]:.1f} ms",
            f"{statistics.median(sent.in_batches):,.0f}",
            f"{statistics.median(sent.attaches_ms):.0f} ms",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines
