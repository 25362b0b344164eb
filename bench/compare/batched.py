"""Events in batches, in turns: our node, Kafka, and the bare C broker one by one for the CPU time.

All sync before they accept. Each of our connections and of Kafka's producers has a partition of its own, and
the same number of events in flight. Our load is `batch_send` and `amqp_load --batched` (C) or the Python
client, Kafka's is `kafka_load` (C, librdkafka, linger 5 ms). Readers check every event, except the Python
client, which counts them. Only one broker runs at a time.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from amqp_streams.client.blocking import connect
from bench import load, ranges, sends
from bench.amqp.processes import BIN, end_process, free_port, wait_quiet
from bench.compare.figures import OURS, REFERENCE, Sink
from bench.process import Usage, usage
from bench.products import kafka_broker
from bench.products.places import why_missing
from bench.server import Server, running

KAFKA: Final = "kafka"
CREDIT: Final = "16"
BATCH_BYTES: Final = 256 << 10
READ_FRAME: Final = str(1 << 20)
TIMEOUT_S: Final = "120"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `windows`: events in flight of a connection; `counts`: events by size."""

    rounds: int
    sizes: Sequence[int]
    connections: Sequence[int]
    windows: Sequence[int]
    counts: Mapping[int, int]
    latency_count: int
    quiet_s: float
    work: Path


def measure(plan: Plan, sink: Sink, peers: Sequence[str]) -> list[str]:
    """Measure everything into `sink`; what failed or is missing, in words."""
    parts: dict[str, Callable[[Plan, Sink], None]] = {OURS: _ours, KAFKA: _kafka, REFERENCE: _reference}
    words = []
    if KAFKA in peers and (why := why_missing(KAFKA, kafka_broker.LOAD)):
        words.append(f"{KAFKA}: {why}")
        parts.pop(KAFKA)
    names = [name for name in parts if name == OURS or name in peers]
    for number in range(plan.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            try:
                parts[name](plan, sink)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                words.append(f"{name}, batches, round {number + 1}: {error}")
    return words


def _ours(plan: Plan, sink: Sink) -> None:
    for size in plan.sizes:
        for connections in plan.connections:
            for window in plan.windows:
                _our_cell(plan, sink, size, connections, window)


def _our_cell(plan: Plan, sink: Sink, size: int, connections: int, window: int) -> None:
    count, cell = plan.counts[size], f"{size}x{connections}"
    with (
        tempfile.TemporaryDirectory(dir=plan.work) as folder,
        running(Path(folder), logs=[f"events:{connections}"]) as server,
    ):
        common = ["--url", server.url, "--address", "events", "--count", str(count), "--size", str(size)]
        common += ["--connections", str(connections), "--run-id", "7", "--timeout", TIMEOUT_S]
        sending = ["--window", str(window), "--partitions", str(connections)]
        note = _costs(plan, sink, OURS, server.usage, count)
        note(f"batched_send_{cell}_w{window}", lambda: _generator("batch_send", *common, *sending))
        if window == max(plan.windows):
            reading = ["--batched", "--presettled", "--credit", CREDIT, "--max-frame", READ_FRAME]
            reading += [*load.FROM_EARLIEST, "--partition", ",".join(map(str, range(connections)))]
            note(f"batched_recv_{cell}", lambda: _generator("amqp_load", "recv", *common, *reading))
            _python(sink, server, size, connections, count)


def _python(sink: Sink, server: Server, size: int, connections: int, count: int) -> None:
    """The same with the Python client, all connections in one process."""
    cell = f"{size}x{connections}"
    cost = asyncio.run(sends.sent(server, ranges.message(size), count // 2, connections, BATCH_BYTES))
    sink.add(OURS, f"python_send_{cell}", cost.rate)
    if connections == 1:
        with connect(server.url) as client:
            read = ranges.measured(server, client, ranges.in_batches, count)
        sink.add(OURS, f"python_recv_{cell}", read.rate)


def _kafka(plan: Plan, sink: Sink) -> None:
    with kafka_broker.running(plan.work / "kafka") as broker:
        sink.version(KAFKA, kafka_broker.version(), "log synced for each appended batch, linger 5 ms")
        number = 0
        for size in plan.sizes:
            for connections in plan.connections:
                for window in plan.windows:
                    number += 1
                    topic, cell, count = f"t{number}", f"{size}x{connections}", plan.counts[size]
                    note = _costs(plan, sink, KAFKA, broker.usage, count)
                    shape = {"count": count, "size": size, "connections": connections}
                    sending = {**shape, "window": window, "linger": kafka_broker.LINGER_MS}
                    note(f"batched_send_{cell}_w{window}", partial(broker.load, "send", topic, **sending))
                    if window == max(plan.windows):
                        note(f"batched_recv_{cell}", partial(broker.load, "recv", topic, **shape))
        if plan.latency_count:
            broker.load("latency", "warm", count=plan.latency_count, size=100, rate=1000)
            wait_quiet(plan.quiet_s)
            found = broker.load(
                "latency",
                "paced",
                count=plan.latency_count,
                size=100,
                rate=1000,
                linger=kafka_broker.LINGER_MS,
            )
            sink.add(KAFKA, "latency_p50", found["p50_ms"])
            sink.add(KAFKA, "latency_p99", found["p99_ms"])


def _reference(plan: Plan, sink: Sink) -> None:
    """The C broker one by one: what a batched event is compared with, in the same run."""
    for size in plan.sizes:
        count, port = plan.counts[size], free_port()
        with tempfile.TemporaryDirectory(dir=plan.work) as folder:
            command = [f"{BIN}/queue_broker", f"127.0.0.1:{port}", "--log", f"{folder}/log"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            try:
                url = f"amqp://127.0.0.1:{port}"
                common = ["--url", url, "--address", "q", "--size", str(size), "--timeout", TIMEOUT_S]
                _until_it_answers(common)
                common += ["--count", str(count), "--run-id", "7"]
                note = _costs(plan, sink, REFERENCE, partial(usage, process.pid), count)
                for mode, more in (("send", ["--durable"]), ("recv", [])):
                    note(f"{mode}_{size}x1", partial(_generator, "amqp_load", mode, *common, *more))
            finally:
                end_process(process)


def _until_it_answers(common: Sequence[str]) -> None:
    for _ in range(100):
        with suppress(RuntimeError):
            _generator("amqp_load", "send", *common, "--address", "first", "--count", "1")
            return
    message = "the C broker does not answer"
    raise RuntimeError(message)


def _costs(
    plan: Plan, sink: Sink, name: str, used: Callable[[], Usage], count: int
) -> Callable[[str, Callable[[], Mapping[str, Any]]], None]:
    """A function that runs one measurement, and keeps its rate and the CPU time of the serving process."""

    def note(figure: str, run: Callable[[], Mapping[str, Any]]) -> None:
        wait_quiet(plan.quiet_s)
        before = used().cpu_seconds
        rate = float(run()["msgs_per_s"])
        cpu_us = (used().cpu_seconds - before) * 1e6 / count
        sink.add(name, figure, rate)
        sink.add(name, cpu_name(figure), cpu_us)
        print(f"{name} {figure}: {rate:,.0f}/s, {cpu_us:.2f} us", file=sys.stderr, flush=True)

    return note


def cpu_name(figure: str) -> str:
    """The figure of the CPU time that belongs to a rate: send_100x1 has send_cpu_us_100x1."""
    way, _, cell = figure.rpartition("_") if not figure.startswith("batched") else (figure, "", "")
    return f"{way}_cpu_us_{cell}" if cell else f"{figure}_cpu_us"


def _generator(name: str, *arguments: str) -> Mapping[str, Any]:
    """Run one of our generators.

    Raises:
        RuntimeError: not everything was accepted or arrived as it should.
    """
    done = subprocess.run([f"{BIN}/{name}", *arguments], capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        found = {"ok": False, "error": done.stderr.strip()}
    if not found["ok"]:
        message = f"{name}: {found['error']}"
        raise RuntimeError(message)
    return found
