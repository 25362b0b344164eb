"""From a POST to the subscriber's POST: how many events a second, what many Triggers cost, how long an event
takes, what a dead one does.

    python -m bench.deliveries [--quick]

The gateway and its node are processes of their own; sender and subscriber are one more, and cheap
(http_load.py). Everything runs on this machine, so "on 2 cores" includes them. Runs that are compared
alternate on the same gateway: of the floods the best count, of the paced runs all latencies together. A run
begins when the gateway has done what follows from its resources, and from those before them that were
deleted: a hundred Triggers have a hundred statuses and Events. What a durable 202 costs is in gateway.py.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import uvloop
import yaml

from bench.amqp.processes import cpu_and_rss, process_tree
from bench.http_load import Record, Silent, Subscriber, flood, pace
from bench.process import usage
from examples.gateway import GatewayProcess

BODY: Final = b'{"v":"' + b"x" * 1016 + b'"}'
CONNECTIONS: Final = 64
MANY: Final = 100
RATE: Final = 200.0
WAIT_S_MAX: Final = 120.0
QUIET_S: Final = 0.25
QUIET_SHARE: Final = 0.08
"""Of a core: below that for `QUIET_S`, twice, the gateway is at rest."""
QUIET_S_MAX: Final = 30.0
WANTED_RATE: Final = 6000.0
WANTED_COST: Final = 2.0
WANTED_P99_MS: Final = 20.0
WANTED_NEIGHBOURS: Final = 1.5


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `cpu_us`: of the gateway for an event;

    `latencies_ms`: from when each was to be sent to when it arrived, sorted.
    """

    per_second: float
    cpu_us: float
    node_us: float
    load_us: float
    again: int
    latencies_ms: Sequence[float] = field(repr=False)

    @property
    def p99_ms(self) -> float:
        """What one in a hundred takes longer than."""
        return quantile(self.latencies_ms, 0.99)

    def shown(self) -> dict[str, float]:
        """All but the single latencies."""
        figures = {name: value for name, value in asdict(self).items() if name != "latencies_ms"}
        return {**figures, "p50_ms": quantile(self.latencies_ms, 0.5), "p99_ms": self.p99_ms}

    @classmethod
    def together(cls, runs: Sequence["Run"]) -> "Run":
        """Several runs of the same as one: means, and all their latencies."""
        latencies = sorted(latency for run in runs for latency in run.latencies_ms)
        return cls(
            per_second=statistics.fmean(run.per_second for run in runs),
            cpu_us=statistics.fmean(run.cpu_us for run in runs),
            node_us=statistics.fmean(run.node_us for run in runs),
            load_us=statistics.fmean(run.load_us for run in runs),
            again=sum(run.again for run in runs),
            latencies_ms=latencies,
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    what: str
    value: str
    wanted: str
    met: bool


class Bench:
    """A gateway with Brokers made as they are needed."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway: Final = gateway
        self._brokers = 0

    async def run(
        self,
        count: int,
        *,
        triggers: int = 1,
        per_second: float | None = None,
        dead: bool = False,
        skip: int = 0,
    ) -> Run:
        """Events of as many types as there are Triggers, each for one of them;

        `dead`: one more that wants all and never answers.
        """
        loop = asyncio.get_running_loop()
        record = Record(count)
        server = await loop.create_server(lambda: Subscriber(record), "127.0.0.1", 0, backlog=1024)
        silent = await loop.create_server(Silent, "127.0.0.1", 0, backlog=1024)
        url, nowhere = (f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}/" for each in (server, silent))
        types = [f"type{index}" for index in range(triggers)]
        self._brokers += 1
        broker = f"bench{self._brokers}"
        text = yaml.safe_dump_all(resources(broker, types, url, nowhere if dead else None))
        await asyncio.to_thread(self._gateway.apply, text)
        await self._rest()
        path = f"{self._gateway.base_url}/broker/default/{broker}"
        before, load_before = self._cpu(), time.process_time()
        if per_second is None:
            await flood(path, record, types, BODY, connections=CONNECTIONS)
        else:
            await pace(path, record, types, BODY, per_second=per_second)
        async with asyncio.timeout(WAIT_S_MAX):
            await record.complete.wait()
        after, load_us = self._cpu(), (time.process_time() - load_before) * 1e6 / count
        assert not record.refused, f"{record.refused} events were not accepted"
        await asyncio.to_thread(self._gateway.delete, text)
        server.close()
        silent.close()
        gateway_us, node_us = ((then - now) * 1e6 / count for now, then in zip(before, after, strict=True))
        return Run(
            count / record.seconds, gateway_us, node_us, load_us, record.again, record.latencies_ms(skip)
        )

    async def _rest(self) -> None:
        """Wait until it does nothing for anybody, or for so long that it seems to have other work
        for good.
        """
        quiet, latest = 0, time.monotonic() + QUIET_S_MAX
        while quiet < 2 and time.monotonic() < latest:  # once may be between two things that it does
            before = usage(self._gateway.pid).cpu_seconds
            await asyncio.sleep(QUIET_S)
            quiet = quiet + 1 if usage(self._gateway.pid).cpu_seconds - before < QUIET_SHARE * QUIET_S else 0

    def _cpu(self) -> tuple[float, float]:
        node = self._gateway.node_pid
        assert node is not None
        workers = [pid for pid in process_tree(self._gateway.pid) if pid != node]
        return cpu_and_rss(workers)[0], usage(node).cpu_seconds


def resources(broker: str, types: Sequence[str], url: str, dead: str | None) -> list[dict[str, object]]:
    """A Broker, a Trigger for each type, and perhaps one whose subscriber never answers."""
    made: list[dict[str, object]] = [
        {
            "apiVersion": "eventing.knative.dev/v1",
            "kind": "Broker",
            "metadata": {"name": broker, "namespace": "default"},
        }
    ]

    def trigger(name: str, to: str, filter_: dict[str, object], delivery: dict[str, object]) -> None:
        spec = {"broker": broker, "subscriber": {"uri": to}, "delivery": delivery, **filter_}
        metadata = {"name": f"{broker}-{name}", "namespace": "default"}
        made.append(
            {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": metadata, "spec": spec}
        )

    for type_ in types:
        trigger(type_, url, {"filters": [{"exact": {"type": type_}}]}, {"retry": 3, "backoffDelay": "PT0.1S"})
    if dead is not None:
        trigger("dead", dead, {}, {"retry": 3, "backoffDelay": "PT0.1S", "timeout": "PT1S"})
    return made


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(
    gateway: GatewayProcess, *, events: int, paced_s: float, rounds: int
) -> tuple[list[Figure], dict[str, Run]]:
    """All figures; each run is printed as it is known.

    What is compared is run in turn, so that a bad moment of the machine meets both.
    """
    bench = Bench(gateway)

    async def run(
        name: str, count: int, *, triggers: int = 1, per_second: float | None = None, dead: bool = False
    ) -> Run:
        skip = int(per_second) if per_second else 0  # the first second warms up
        made = await bench.run(count, triggers=triggers, per_second=per_second, dead=dead, skip=skip)
        tell(name, made)
        return made

    paced = int(RATE * paced_s)
    await bench.run(min(events, 2000))
    floods = [
        (await run("one Trigger", events), await run(f"{MANY} Triggers", events, triggers=MANY))
        for _ in range(rounds)
    ]
    paces = [
        (
            await run("paced", paced, per_second=RATE),
            await run("paced, a dead neighbour", paced, per_second=RATE, dead=True),
        )
        for _ in range(2 * rounds)
    ]
    one, many = (max(runs, key=lambda each: each.per_second) for runs in zip(*floods, strict=True))
    calm, disturbed = (Run.together(runs) for runs in zip(*paces, strict=True))
    runs = {
        "one Trigger": one,
        f"{MANY} Triggers": many,
        "all paced": calm,
        "all paced, a dead neighbour": disturbed,
    }
    for name, made in runs.items():
        tell(name, made)
    return _figures(one, many, calm, disturbed), runs


def _figures(one: Run, many: Run, calm: Run, disturbed: Run) -> list[Figure]:
    """Return the wanted figures.

    `one`, `many`: as fast as possible, with one Trigger and with MANY. `calm`, `disturbed`: at RATE, without
    and with a neighbour that does not answer.
    """
    cost, elapsed, neighbours = (
        many.cpu_us / one.cpu_us,
        one.per_second / many.per_second,
        disturbed.p99_ms / calm.p99_ms,
    )
    return [
        Figure(
            "end to end, one Trigger, events/s",
            f"{one.per_second:,.0f}",
            f">= {WANTED_RATE:,.0f}",
            one.per_second >= WANTED_RATE,
        ),
        Figure(
            f"{MANY} Triggers / one: CPU of the gateway",
            f"{cost:.2f}",
            f"< {WANTED_COST:g}",
            cost < WANTED_COST,
        ),
        Figure(f"{MANY} Triggers / one: time", f"{elapsed:.2f}", f"< {WANTED_COST:g}", elapsed < WANTED_COST),
        Figure(
            f"p99 at {RATE:.0f} events/s, ms",
            f"{calm.p99_ms:.1f}",
            f"< {WANTED_P99_MS:g}",
            calm.p99_ms < WANTED_P99_MS,
        ),
        Figure(
            "p99 beside a dead one / without",
            f"{neighbours:.2f}",
            f"<= {WANTED_NEIGHBOURS:g}",
            neighbours <= WANTED_NEIGHBOURS,
        ),
    ]


def tell(name: str, run: Run) -> None:
    """Print a run."""
    p50 = quantile(run.latencies_ms, 0.5)
    print(
        f"  {name}: {run.per_second:,.0f}/s, gateway {run.cpu_us:.0f} us, node {run.node_us:.0f} us, "
        f"load {run.load_us:.0f} us an event, "
        f"p50 {p50:.1f} ms, p99 {run.p99_ms:.1f} ms of {len(run.latencies_ms):,}, {run.again} twice",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table; 1 if a wanted figure is missed."""
    parser = argparse.ArgumentParser(
        prog="bench.deliveries", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of it, once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured here, too")
    chosen = parser.parse_args(arguments)
    events, paced_s, rounds = (4000, 3.0, 1) if chosen.quick else (40_000, 15.0, 2)
    print(f"{os.cpu_count()} cores, events of {len(BODY):,} bytes, load {os.getloadavg()[0]:.1f}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        GatewayProcess(Path(folder), "--log-level", "warning") as gateway,
    ):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures, runs = runner.run(measure(gateway, events=events, paced_s=paced_s, rounds=rounds))
        gateway.stop()
    print("\n| figure | measured | wanted | met |\n|---|---|---|---|")
    for each in figures:
        print(f"| {each.what} | {each.value} | {each.wanted} | {'yes' if each.met else 'NO'} |")
    if chosen.json:
        chosen.json.write_text(json.dumps({name: run.shown() for name, run in runs.items()}))
    return 0 if all(each.met for each in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
