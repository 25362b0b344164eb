"""From a POST to the subscriber's POST through gateways with different numbers of workers, in turn.

    python -m bench.workers --workers 1,2 --triggers 1,1000 --rounds 3

All gateways run at the same time, each with a node of its own, and do nothing while another one is measured.
Load and subscribers are one more process, on the same cores. `--unbatched` adds a gateway with one worker
whose appender sends each event in a transfer of its own, to compare what batches save. `--against FOLDER`
adds a gateway with one worker of another checkout of this repository, to measure a change.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import uvloop
import yaml

from bench.deliveries import BODY, CONNECTIONS, resources
from bench.http_load import Record, Subscriber, flood
from bench.process import usage
from examples.gateway import GatewayProcess

WAIT_S_MAX: Final = 120.0
REST_S: Final = 1.0
_UNBATCHED: Final = """
import functools, sys
from amqp_streams.client.aio import Client
Client.producer = functools.partialmethod(Client.producer, batch_bytes=0)
from knative_gateway.cli import main
sys.argv[0] = "knative-gateway"
sys.exit(main())
"""


class Unbatched(GatewayProcess):
    """A gateway whose appender sends one event in a transfer."""

    def command(self) -> list[str]:
        """What is run."""
        return [sys.executable, "-c", _UNBATCHED, *super().command()[1:]]


class Other(GatewayProcess):
    """A gateway of another checkout, with the installed libraries."""

    checkout: Path

    def environment(self) -> dict[str, str]:
        """Its packages come before those that are installed."""
        return {**super().environment(), "PYTHONPATH": str(self.checkout)}


class Side:
    """One gateway with its Brokers, one for each number of Triggers."""

    def __init__(self, name: str, gateway: GatewayProcess) -> None:
        self.name: Final = name
        self.gateway: Final = gateway
        self._record: Final = Record(1)
        self._url = ""

    async def prepare(self, triggers: Sequence[int]) -> None:
        """Create the Brokers, and a subscriber for all of them."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Subscriber(self._record), "127.0.0.1", 0, backlog=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for count in triggers:
            types = [f"type{index}" for index in range(count)]
            text = yaml.safe_dump_all(resources(f"bench{count}", types, url, None))
            await asyncio.to_thread(self.gateway.apply, text)

    async def run(self, triggers: int, events: int) -> tuple[float, float, float, float]:
        """Events a second; CPU of the gateway, of its node and of the load for an event, us."""
        record = self._record
        record.count, record.again, record.refused = events, 0, 0
        record.__post_init__()
        record.complete.clear()
        path = f"{self.gateway.base_url}/broker/default/bench{triggers}"
        before, load = self._cpu(), time.process_time()
        types = [f"type{index}" for index in range(triggers)]
        await flood(path, record, types, BODY, connections=CONNECTIONS)
        async with asyncio.timeout(WAIT_S_MAX):
            await record.complete.wait()
        after, load_us = self._cpu(), (time.process_time() - load) * 1e6 / events
        assert not record.refused, f"{record.refused} events were not accepted"
        gateway_us, node_us = ((then - now) * 1e6 / events for now, then in zip(before, after, strict=True))
        return events / record.seconds, gateway_us, node_us, load_us

    def _cpu(self) -> tuple[float, float]:
        """CPU seconds of parent and workers, and of the node."""
        node = self.gateway.node_pid
        assert node is not None
        pid = self.gateway.pid
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        own = [pid, *(child for child in children if child != node)]
        return sum(usage(each).cpu_seconds for each in own), usage(node).cpu_seconds


async def measure(sides: Sequence[Side], triggers: Sequence[int], events: int, rounds: int) -> None:
    """Run the sides in turn, and print each run and the medians."""
    found: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    for side in sides:
        await side.prepare(triggers)
        for count in triggers:
            await side.run(count, max(1000, events // 5))
    for _ in range(rounds):
        for count in triggers:
            for side in sides:
                await asyncio.sleep(REST_S)
                made = await side.run(count, events)
                found.setdefault((side.name, count), []).append(made)
                _tell(f"{side.name}, {count} Triggers", made)
    print("medians:")
    medians: Mapping[tuple[str, int], Sequence[float]] = {
        key: [statistics.median(column) for column in zip(*runs, strict=True)] for key, runs in found.items()
    }
    for (name, count), median in medians.items():
        _tell(f"{name}, {count} Triggers", median)


def _tell(name: str, run: Sequence[float]) -> None:
    rate, gateway_us, node_us, load_us = run
    words = f"gateway {gateway_us:.0f} us, node {node_us:.0f} us, load {load_us:.0f} us an event"
    print(f"  {name}: {rate:,.0f}/s, {words}, load average {os.getloadavg()[0]:.1f}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="bench.workers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",")]

    parser.add_argument("--workers", type=numbers, default=[1, 2], metavar="N,N")
    parser.add_argument("--triggers", type=numbers, default=[1], metavar="N,N")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unbatched", action="store_true")
    parser.add_argument("--against", type=Path, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        started = [
            Side(
                f"{count} workers",
                GatewayProcess(Path(folder) / str(count), "--log-level", "warning", "--workers", str(count)),
            )
            for count in chosen.workers
        ]
        if chosen.unbatched:
            gateway = Unbatched(Path(folder) / "unbatched", "--log-level", "warning")
            started.append(Side("1 worker, unbatched", gateway))
        if chosen.against:
            other = Other(Path(folder) / "other", "--log-level", "warning")
            other.checkout = chosen.against.absolute()
            started.append(Side("1 worker, other checkout", other))
        for side in started:
            stack.enter_context(side.gateway)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure(started, chosen.triggers, chosen.events, chosen.rounds))
        for side in started:
            side.gateway.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
