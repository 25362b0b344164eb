"""Far readers of one partition on Kafka: whether they get fair shares, and whether the tail is starved.

Readers begin at places that are evenly distributed over a backlog that is larger than the node's cache, each
with a process and a connection of its own, and read in batches as fast as they can until their time is over.
Meanwhile, events are sent to the same partition and received at its end at 1,000 a second.
"""

import json
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Final

from bench import load
from bench.kafka_store.cells import IN_BATCHES, Cell, amqp, generated
from bench.server import Server

SIZE: Final = 1024
CREDIT: Final = "2"
SECONDS: Final = 10
PACED: Final = ("--rate", "1000", *load.FROM_LATEST)
LATENCY_COUNT: Final = 4000
SPREAD: Final = 0.7
"""Which part of the backlog the readers begin in: none must reach the end."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What far readers got in `seconds`: events, and milliseconds of the tail alone and beside them."""

    readers: int
    seconds: float
    least: int
    median: float
    most: int
    together: int
    node_cpu_share: float
    tail_alone_ms: dict[str, float]
    tail_ms: dict[str, float]

    def words(self) -> str:
        """As a line for people."""
        return (
            f"{self.readers} far readers for {self.seconds:.0f} s: {self.together / self.seconds:,.0f}/s"
            f" together; each {self.least:,} to {self.most:,} events, median {self.median:,.0f}; node"
            f" {self.node_cpu_share:.0%} of a core; tail p50 {self.tail_ms['p50']} ms, p99"
            f" {self.tail_ms['p99']} ms (without readers {self.tail_alone_ms['p50']}"
            f" and {self.tail_alone_ms['p99']} ms)"
        )


def measure(server: Server, log: str, readers: int, events: int) -> Shares:
    """Fill a log with so many events, and measure with so many readers.

    Raises:
        RuntimeError: events of the tail were lost.
    """
    generated(amqp(Cell(IN_BATCHES, "in", SIZE), server.url, log, events))
    alone = _tail(server, log)
    before, began = server.usage().cpu_seconds, time.monotonic()
    processes = [
        subprocess.Popen(
            _reader(server.url, log, int(events * SPREAD * index / readers), events),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for index in range(readers)
    ]
    try:
        tail = _tail(server, log)
        found = [json.loads(process.communicate()[0]) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    used = (server.usage().cpu_seconds - before) / (time.monotonic() - began)
    got = [int(one["messages"]) for one in found]
    return Shares(readers, SECONDS, min(got), statistics.median(got), max(got), sum(got), used, alone, tail)


def _tail(server: Server, log: str) -> dict[str, float]:
    done = load.run("latency", server.url, log, count=LATENCY_COUNT, options=PACED)
    if not done.ok:
        message = f"the tail lost events: {done.error}"
        raise RuntimeError(message)
    found: dict[str, Any] = done.figures["latency_ms"]
    return {name: float(found[name]) for name in ("p50", "p99")}


def _reader(url: str, log: str, start: int, events: int) -> list[str]:
    options = ["--batched", "--presettled", "--credit", CREDIT, "--partition", "0", "--size", str(SIZE)]
    # It ends by its timeout: the count is never reached.
    options += ["--es-offset", f"{start:016d}", "--timeout", str(SECONDS)]
    return load.command("recv", url, log, count=2 * events, run_id=7, options=options)
