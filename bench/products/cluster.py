"""[io] A whole cluster on loopback, as people run it: `make cluster`.

    python -m bench.products.cluster [--folder build/cluster] [--nodes 3] [--gateways 2]

Three Kafka brokers, nodes that share their logs and consumer groups, PostgreSQL, and gateways that share the
Brokers and Triggers. It prints where each of them is, and runs until Ctrl-C or SIGTERM. Then all of them are
stopped by their process ids. The folder has what they printed; the data of an earlier run is deleted. Without
PostgreSQL (Debian: apt-get install postgresql) there is one gateway, with a file as its database.
"""

import argparse
import secrets
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.products import kafka_cluster, postgresql
from bench.products.install import installed
from bench.products.kafka_node import KafkaNode
from bench.products.places import PROJECT
from bench.server import free_port
from examples.gateway import GatewayProcess
from examples.node import NodeProcess

FOLDER: Final = PROJECT / "build" / "cluster"
NODES: Final = 3
GATEWAYS: Final = 2
_SECRET: Final = "node-secret"
_START: Final = "start.sh"
"""In the folder of a node: starts it again where clients know it."""
_DATABASE: Final = {"listen_addresses": "", "max_connections": "60"}


@dataclass(frozen=True, slots=True)
class Running:
    """What runs. `database`: the URL; None: the gateway has a file."""

    brokers: str
    nodes: tuple[NodeProcess, ...]
    gateways: tuple[GatewayProcess, ...]
    database: str | None

    @property
    def amqp(self) -> str:
        """All nodes, for clients that take several."""
        return "amqp://" + ",".join(node.addresses["amqp"][0] for node in self.nodes)

    def words(self) -> str:
        """What people need to know."""
        lines = [f"{'Kafka':<12}{self.brokers}"]
        for number, node in enumerate(self.nodes, 1):
            admin, console = (f"http://{node.addresses[kind][0]}" for kind in ("admin", "console"))
            lines.append(f"{'node ' + str(number):<12}{node.url}, process {node.pid}")
            lines.append(f"{'':<12}admin {admin}, console {console}")
            lines.append(f"{'':<12}if it was killed: sh {node.folder / _START}")
        lines += [f"{'all nodes':<12}{self.amqp}", f"{'PostgreSQL':<12}{self.database or 'not installed'}"]
        for number, gateway in enumerate(self.gateways, 1):
            console = f"http://{gateway.addresses['console'][0]}"
            lines.append(f"{'gateway ' + str(number):<12}{gateway.base_url}, process {gateway.pid}")
            lines.append(f"{'':<12}console {console}")
        return "\n".join(lines)


@contextmanager
def running(folder: Path, *, nodes: int = NODES, gateways: int = GATEWAYS) -> Iterator[Running]:
    """A cluster in `folder`, from which an earlier one is removed.

    Raises:
        RuntimeError: a part does not start; with its words.
    """
    _empty(folder)
    with ExitStack() as stack:
        kafka = kafka_cluster.made(folder / "kafka")
        stack.callback(_kill, kafka)
        for broker in kafka.brokers:
            broker.start(with_parent=True)
        kafka.await_ready()
        secret = folder / _SECRET
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        between = ("--node-listen", "127.0.0.1:0", "--node-secret-file", str(secret))
        pages = ("--admin-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0")
        store = ("--store", "kafka", "--kafka-servers", kafka.servers, *between, *pages)
        started = tuple(
            stack.enter_context(KafkaNode(folder / f"node-{number}", *store))
            for number in range(1, nodes + 1)
        )
        for node in started:
            (node.folder / _START).write_text(f"exec {shlex.join(node.command())}\n")
        database = None
        if postgresql.binaries() is not None:
            database = postgresql.url_of(stack.enter_context(postgresql.server(_DATABASE)))
        made = Running(kafka.servers, started, (), database)
        yield Running(kafka.servers, started, tuple(_gateways(stack, folder, made, gateways)), database)


def _empty(folder: Path) -> None:
    """Remove what an earlier run left: nothing else, and nothing of a cluster that runs."""
    brokers = folder / "kafka"
    if folder.exists() and not brokers.is_dir() and any(folder.iterdir()):
        message = f"{folder} is not the folder of a cluster, and not empty: choose another --folder"
        raise RuntimeError(message)
    if any(broker.pid for broker in kafka_cluster.found(brokers).brokers):
        message = f"a cluster runs in {folder}: stop it, or choose another --folder"
        raise RuntimeError(message)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _kill(kafka: kafka_cluster.Cluster) -> None:
    """End the brokers. In order, the last one would wait half a minute for the others."""
    for broker in kafka.brokers:
        if broker.pid is not None:
            broker.signal(signal.SIGKILL)


def _gateways(stack: ExitStack, folder: Path, made: Running, count: int) -> Iterator[GatewayProcess]:
    """Start gateways. The URLs of Brokers name the first one: in production, that of a load balancer."""
    port = free_port()
    options = [
        "--amqp",
        made.amqp,
        "--public-url",
        f"http://127.0.0.1:{port}",
        "--console-listen",
        "127.0.0.1:0",
    ]
    if made.database is None:
        count = min(count, 1)
    else:
        options += ["--store", made.database]
    for number in range(1, count + 1):
        listen = f"127.0.0.1:{port if number == 1 else 0}"
        gateway = GatewayProcess(folder / f"gateway-{number}", *options, listen=listen)
        yield stack.enter_context(gateway)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.products.cluster", description="A whole cluster on loopback, until Ctrl-C."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="what an earlier run left in it is removed (build/cluster)",
    )
    parser.add_argument("--nodes", type=int, default=NODES, help=f"({NODES})")
    parser.add_argument("--gateways", type=int, default=GATEWAYS, help=f"({GATEWAYS}; 1 without PostgreSQL)")
    given = parser.parse_args(arguments)
    if not installed("kafka") or kafka_cluster.why_not():
        print(f"cluster: Kafka does not run here: {kafka_cluster.why_not()}", file=sys.stderr)
        return 1
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print("starting three brokers, nodes and gateways: about half a minute", flush=True)
    try:
        with running(given.folder, nodes=given.nodes, gateways=given.gateways) as found:
            print(found.words(), flush=True)
            print("Ctrl-C stops all of it", flush=True)
            while not ended.wait(1.0):
                pass
    except RuntimeError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
