"""From a POST to the subscriber's POST, in turns: our gateway, and Knative's own data plane in memory.

Events of 1 KiB; sender and subscriber are one process (`bench.http_load`). With many Triggers each event is
for one of them. Knative asks its filter once for each Trigger of an event, so it gets fewer events then.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from bench.compare.figures import OURS, Sink
from bench.deliveries import BODY, CONNECTIONS, RATE, WAIT_S_MAX, Bench, Run, quantile
from bench.http_load import Record, Subscriber, flood, pace
from bench.products import knative_broker
from bench.products.places import why_missing
from examples.gateway import GatewayProcess

KNATIVE: Final = "knative"
WARM_UP: Final = 2000
FEW: Final = 20
"""Events for Knative with many Triggers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `options`: of our gateway's command line."""

    rounds: int
    events: int
    paced_s: float
    triggers: Sequence[int]
    options: Sequence[str]
    work: Path


class Relay:
    """Tells arrivals to the record of the current run: connections of Knative outlive a run."""

    def __init__(self) -> None:
        self.record = Record(1)

    def note_arrival(self, number: int) -> None:
        """One came."""
        self.record.note_arrival(number)


def measure(plan: Plan, sink: Sink, peers: Sequence[str]) -> list[str]:
    """Measure everything into `sink`; what failed or is missing, in words."""
    parts = {OURS: _ours}
    words = []
    if KNATIVE in peers:
        if why := why_missing(KNATIVE):
            words.append(f"{KNATIVE}: {why}")
        else:
            parts[KNATIVE] = _knative
    for number in range(plan.rounds):
        for name, part in list(parts.items())[:: 1 if number % 2 == 0 else -1]:
            try:
                part(plan, sink)
            except (RuntimeError, OSError, TimeoutError, AssertionError, subprocess.SubprocessError) as error:
                words.append(f"{name}, gateway, round {number + 1}: {error!r}")
    return words


def _ours(plan: Plan, sink: Sink) -> None:
    async def runs(gateway: GatewayProcess) -> None:
        bench = Bench(gateway)
        await bench.run(min(plan.events, WARM_UP))
        for triggers in plan.triggers:
            _note(sink, OURS, triggers, await bench.run(plan.events, triggers=triggers))
        paced = await bench.run(int(RATE * plan.paced_s), per_second=RATE, skip=int(RATE))
        _note_paced(sink, OURS, paced)

    with (
        tempfile.TemporaryDirectory(dir=plan.work) as folder,
        GatewayProcess(Path(folder), "--log-level", "warning", *plan.options) as gateway,
    ):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(runs(gateway))
        gateway.stop()


def _knative(plan: Plan, sink: Sink) -> None:
    sink.version(KNATIVE, knative_broker.version(), "nothing is durable")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for triggers in plan.triggers:
            runner.run(_knative_runs(plan, sink, triggers))


async def _knative_runs(plan: Plan, sink: Sink, triggers: int) -> None:
    relay, types = Relay(), [f"type{n}" for n in range(triggers)]
    server = await asyncio.get_running_loop().create_server(
        lambda: Subscriber(relay), "127.0.0.1", 0, backlog=1024
    )
    to = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    with (
        tempfile.TemporaryDirectory(dir=plan.work) as folder,
        knative_broker.running(Path(folder), types, to) as broker,
    ):
        many = triggers > 1
        await _knative_run(broker, relay, FEW if many else WARM_UP, types)
        flooded = await _knative_run(broker, relay, FEW if many else plan.events, types)
        _note(sink, KNATIVE, triggers, flooded)
        if not many:
            paced = await _knative_run(broker, relay, int(RATE * plan.paced_s), types, per_second=RATE)
            _note_paced(sink, KNATIVE, paced)
    server.close()


async def _knative_run(
    broker: knative_broker.Knative,
    relay: Relay,
    count: int,
    types: Sequence[str],
    *,
    per_second: float | None = None,
) -> Run:
    record = relay.record = Record(count)
    before, own = broker.cpu_seconds(), time.process_time()
    if per_second is None:
        await flood(broker.url, record, types, BODY, connections=min(CONNECTIONS, count))
    else:
        await pace(broker.url, record, types, BODY, per_second=per_second)
    async with asyncio.timeout(WAIT_S_MAX):
        await record.complete.wait()
    assert not record.refused, f"{record.refused} events were not accepted"
    cpu_us = (broker.cpu_seconds() - before) * 1e6 / count
    load_us = (time.process_time() - own) * 1e6 / count
    latencies = record.latencies_ms(int(per_second or 0))
    return Run(count / record.seconds, cpu_us, 0.0, load_us, record.again, latencies)


def _note(sink: Sink, name: str, triggers: int, run: Run) -> None:
    sink.add(name, f"gateway_{triggers}", run.per_second)
    sink.add(name, f"gateway_cpu_us_{triggers}", run.cpu_us)
    sink.add(name, f"gateway_node_us_{triggers}", run.node_us)
    _tell(
        name, f"{triggers} Triggers: {run.per_second:,.0f}/s, {run.cpu_us:.0f} us, node {run.node_us:.0f} us"
    )


def _note_paced(sink: Sink, name: str, run: Run) -> None:
    p50 = quantile(run.latencies_ms, 0.5)
    sink.add(name, "gateway_p50", p50)
    sink.add(name, "gateway_p99", run.p99_ms)
    _tell(name, f"at {RATE:.0f}/s: p50 {p50:.2f} ms, p99 {run.p99_ms:.2f} ms")


def _tell(name: str, words: str) -> None:
    print(f"{name}, gateway, {words}", file=sys.stderr, flush=True)
