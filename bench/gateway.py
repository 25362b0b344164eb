"""Durable ingest of the gateway beside the same server answering 202 and doing nothing: rates by core, and
their ratio.

Both run in processes of their own under one load generator: CONNECTIONS keep-alive connections that each wait
for their answer. What counts is events for each second of CPU time of the server's process, which other load
on the machine does not change.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.process import usage
from knative_gateway.config import GatewaySettings, Limits
from knative_gateway.http.listening import serve_http
from knative_gateway.server import Addresses, Gateway
from service_parts import logging_setup
from service_parts.settings.choices import LogLevel
from service_parts.settings.listeners import Listener

PATH: Final = "/broker/default/bench"
BROKER: Final = "apiVersion: eventing.knative.dev/v1\nkind: Broker\nmetadata: {name: bench}\n"
WANTED: Final = 0.5
_ANSWER: Final = b"HTTP/1.1 202"


@dataclass(frozen=True, slots=True)
class Measured:
    """One side. `rate` is events a second, `by_core` for each second of CPU of the gateway, `with_node` of
    gateway and node.
    """

    rate: float
    by_core: float
    with_node: float


def request(size: int) -> bytes:
    """One event in binary mode with a body of `size` bytes."""
    body = b'{"v":"' + b"x" * (size - 8) + b'"}'
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: bench\r\nuser-agent: bench\r\naccept: */*\r\nce-specversion:"
        " 1.0\r\nce-id: 8f14e45f-ceea-467f-a0e6-1c1d1e2a4b6c\r\nce-source: /sensors/kitchen\r\nce-type:"
        " com.example.temperature\r\nce-time: 2026-01-02T03:04:05.678Z\r\ncontent-type:"
        f" application/json\r\ncontent-length: {size}\r\n\r\n"
    )
    return head.encode() + body


class Sender(asyncio.Protocol):
    """One connection: sends, waits for the answer, sends again."""

    def __init__(self, load: "Load") -> None:
        self._load: Final = load
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        if not data.startswith(_ANSWER):
            self._load.done.set_exception(RuntimeError(data[:200].decode()))
        self._load.answered += 1
        self._send()

    def _send(self) -> None:
        load = self._load
        if load.sent < load.events:
            load.sent += 1
            self._transport.write(load.request)
        elif load.answered >= load.events and not load.done.done():
            load.done.set_result(None)


class Load:
    """All connections together."""

    def __init__(self, request_: bytes, events: int) -> None:
        self.request: Final = request_
        self.events: Final = events
        self.sent = 0
        self.answered = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


async def loaded(address: str, request_: bytes, events: int, connections: int) -> float:
    """Seconds that it took."""
    host, _, port = address.rpartition(":")
    load = Load(request_, events)
    began = time.monotonic()
    made = [
        await asyncio.get_running_loop().create_connection(lambda: Sender(load), host, int(port))
        for _ in range(connections)
    ]
    await load.done
    seconds = time.monotonic() - began
    for transport, _ in made:
        transport.close()
    return seconds


@contextlib.contextmanager
def running(kind: str, folder: Path) -> Iterator[tuple[int, Addresses]]:
    """A server of this kind in a process of its own: its pid, and where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.gateway", "--serve", kind, "--dir", str(folder)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.pid, json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def measure(kind: str, folder: Path, events: int, connections: int, size: int) -> Measured:
    """Warm up, then load."""
    with (
        running(kind, folder) as (pid, addresses),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        [address] = addresses["http"]
        runner.run(loaded(address, request(size), max(1000, events // 10), connections))
        pids = [pid, *map(int, addresses.get("node", []))]
        before = [usage(one).cpu_seconds for one in pids]
        seconds = runner.run(loaded(address, request(size), events, connections))
        cpu = [usage(one).cpu_seconds - earlier for one, earlier in zip(pids, before, strict=True)]
        return Measured(events / seconds, events / cpu[0], events / sum(cpu))


async def serve(kind: str, folder: Path) -> None:
    """What the child does: forever."""
    logging_setup.configure(level=LogLevel.WARNING)
    if kind == "nothing":
        server = await serve_http(_nothing, [Listener(host="127.0.0.1", port=0)], limits=Limits())
        print(json.dumps({"http": server.addresses}), flush=True)
    else:
        (folder / "resources").mkdir(parents=True)
        (folder / "resources" / "broker.yaml").write_text(BROKER)
        gateway = Gateway(
            GatewaySettings(
                listen=(Listener(host="127.0.0.1", port=0),),
                state_dir=folder,
                resources=folder / "resources",
                log_level=LogLevel.WARNING,
            )
        )
        await gateway.start()
        assert gateway.node is not None
        print(json.dumps({**gateway.addresses, "node": [str(gateway.node.pid)]}), flush=True)
    await asyncio.Event().wait()


async def _nothing(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def main() -> int:
    """Measure, print a table; 0 when the wanted ratio is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--dir", type=Path, default=Path("bench/results/gateway"))
    parser.add_argument("--serve", choices=("nothing", "gateway"))
    options = parser.parse_args()
    if options.serve:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options.serve, options.dir))
    shutil.rmtree(options.dir, ignore_errors=True)
    sides = {
        kind: measure(kind, options.dir, options.events, options.connections, options.size)
        for kind in ("nothing", "gateway")
    }
    print(f"{'':10}{'events/s':>12}{'a core':>12}{'with node':>12}")
    for kind, side in sides.items():
        print(f"{kind:10}{side.rate:12,.0f}{side.by_core:12,.0f}{side.with_node:12,.0f}")
    ratio = sides["gateway"].by_core / sides["nothing"].by_core
    print(
        f"ratio by core {ratio:.2f} (wanted {WANTED}), with the node's"
        f" {sides['gateway'].with_node / sides['nothing'].by_core:.2f}"
    )
    return 0 if ratio >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
