"""[io] Three Kafka brokers, nodes on them, and a proxy between each node and each broker.

Each broker has one listener for each node, whose advertised address is that of a proxy: so a broker can be
cut off from the nodes, or a node from the brokers, while the brokers reach each other.
"""

import asyncio
import re
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from bench.brokers.proxy import Proxy
from bench.brokers.verdict import Place
from bench.products import kafka_cluster, kafka_java, kafka_node
from bench.products.kafka_cluster import COUNT, Broker, Cluster
from bench.server import free_port
from examples.node import NodeProcess

PREFIX: Final = "amqp-streams"
_READ_S_MAX: Final = 60.0
_STOPS_S_MAX: Final = 2.0
_EVENT: Final = re.compile(rb"<([a-z0-9-]+):(\d+)>")
_QUIET: Final = {"log_level": 0}


class KafkaNode(kafka_node.KafkaNode):
    """A node that is disturbed, and says what its threads did."""

    def environment(self) -> dict[str, str]:
        """See `NodeProcess.environment`."""
        return {**super().environment(), "PYTHONFAULTHANDLER": "1"}

    def abort(self) -> None:
        """End it; it writes what each of its threads does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()

    async def restart(self) -> None:
        """See `restarted`."""
        await restarted(self)


async def restarted(process: NodeProcess, seconds: float = 600.0) -> None:
    """Start it, again and again while Kafka does not answer, as a service manager does."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await asyncio.to_thread(process.start)
            except RuntimeError:
                # It may still wait for Kafka.
                await asyncio.to_thread(process.kill)
                await asyncio.sleep(0.5)
            else:
                return


class TracedNode(KafkaNode):
    """A node that writes down what it does with links in groups: see `groups.traced_node`."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, *options)
        self._starts = 0

    @property
    def trace(self) -> str:
        """The name of the trace of the process that runs."""
        return f"{self.folder.name}.{self._starts}"

    def launch(self) -> None:
        """See `NodeProcess.launch`."""
        self._starts += 1
        super().launch()

    def command(self) -> list[str]:
        """See `NodeProcess.command`."""
        _, *words = super().command()
        file = self.folder / f"{self.trace}.trace"
        return [sys.executable, "-m", "bench.brokers.groups.traced_node", str(file), *words]

    def stop_at(self, number: signal.Signals) -> bool:
        """Let it stop itself where the signal says; whether it did.

        If nothing comes that it could stop at, it is stopped at once.
        """
        assert self.process is not None
        self.process.send_signal(number)
        until = time.monotonic() + _STOPS_S_MAX
        while not _is_stopped(self.process.pid):
            if time.monotonic() > until:
                self.process.send_signal(signal.SIGSTOP)
                return False
            time.sleep(0.01)
        return True


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return True


@dataclass(frozen=True, slots=True)
class World:
    """What runs. `proxies`: by node and broker, both from 0. `between`: to the listener for other nodes."""

    cluster: Cluster
    nodes: Sequence[KafkaNode]
    proxies: Sequence[Sequence[Proxy]]
    between: Sequence[Proxy] = ()

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [node.url for node in self.nodes]

    def urls_from(self, first: int) -> list[str]:
        """The same, with another node first: clients spread over the nodes."""
        at = first % len(self.nodes)
        return [*self.urls[at:], *self.urls[:at]]

    def of_broker(self, number: int) -> list[Proxy]:
        """The proxies between one broker and all nodes."""
        return [each[number] for each in self.proxies]

    async def start_broker(self, broker: Broker) -> None:
        """Start a broker, and wait until all that run are in the cluster."""
        await asyncio.to_thread(broker.start, with_parent=True)
        running = sum(each.pid is not None for each in self.cluster.brokers)
        await asyncio.to_thread(self.cluster.await_ready, running)


def event(producer: str, number: int) -> bytes:
    """The body of an event, which can be found in a record without decoding AMQP."""
    return b"<%s:%d>" % (producer.encode(), number)


def place(offset: int, body: bytes) -> Place:
    """The event in a body, or in a record.

    Raises:
        ValueError: it has not exactly one.
    """
    found = _EVENT.findall(body)
    if len(found) != 1:
        message = f"{body[:100]!r} at {offset} is not an event of this run"
        raise ValueError(message)
    return Place(offset, found[0][0].decode(), int(found[0][1]))


def stored(servers: str, log: str, partitions: int, *, prefix: str = PREFIX) -> dict[int, list[Place]]:
    """All events of a log, read from Kafka without a node.

    Raises:
        TimeoutError: Kafka does not answer in time.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "verdict",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        **_QUIET,
    }
    consumer = Consumer(settings)
    topic = f"{prefix}.log.{log}"
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        found: dict[int, list[Place]] = {index: [] for index in range(partitions)}
        ended = set[int]()
        while len(ended) < partitions:
            message = consumer.poll(_READ_S_MAX)
            if message is None:
                raise TimeoutError(topic)
            index, error = message.partition() or 0, message.error()
            if error is None:
                found[index].append(place(message.offset() or 0, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(index)
        return found
    finally:
        consumer.close()


@asynccontextmanager
async def running(
    folder: Path, *, nodes: int, options: Sequence[str], homes: bool = False
) -> AsyncIterator[World]:
    """Start everything in `folder`, and stop it at the end. `options`: of each node.

    `homes`: the nodes offer groups, and write traces; a proxy is in front of the listener that each has for
    the others.

    Raises:
        RuntimeError: Kafka is not installed, or something does not start.
    """
    if why := kafka_cluster.why_not():
        raise RuntimeError(why)
    async with AsyncExitStack() as stack:
        ports = [[(free_port(), free_port()) for _ in range(COUNT)] for _ in range(nodes)]
        cluster = await asyncio.to_thread(_made, folder / "brokers", ports)
        stack.push_async_callback(asyncio.to_thread, _stop, cluster)
        proxies = [
            [await stack.enter_async_context(Proxy(real, port=proxied)) for real, proxied in each]
            for each in ports
        ]
        for broker in cluster.brokers:
            broker.start(with_parent=True)
        await asyncio.to_thread(cluster.await_ready)
        listening = [(free_port(), free_port()) for _ in range(nodes if homes else 0)]
        between = [await stack.enter_async_context(Proxy(real, port=proxied)) for real, proxied in listening]
        secret = _secret(folder)
        started = []
        for number, each in enumerate(proxies):
            servers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in each)
            where = ["--store", "kafka", "--kafka-servers", servers, "--admin-listen", "127.0.0.1:0"]
            if homes:
                real, proxied = listening[number]
                where += ["--node-listen", f"127.0.0.1:{real}", "--node-advertise", f"127.0.0.1:{proxied}"]
                where += ["--node-secret-file", str(secret)]
            kind = TracedNode if homes else KafkaNode
            node = kind(folder / f"node-{number + 1}", *where, *options)
            stack.push(node.__exit__)
            # One after the other: the first creates the logs.
            await asyncio.to_thread(node.start)
            started.append(node)
        yield World(cluster, started, proxies, between)


def _secret(folder: Path) -> Path:
    """A file with a secret of the nodes."""
    path = folder / "node-secret"
    path.touch(0o600)
    path.write_text(secrets.token_hex(32))
    return path


def _made(folder: Path, ports: Sequence[Sequence[tuple[int, int]]]) -> Cluster:
    """A cluster with a listener for each node. `ports`: by node and broker, the real one and the proxy's."""
    cluster = kafka_cluster.made(folder)
    for index, broker in enumerate(cluster.brokers):
        file = folder / f"{broker.number}.properties"
        settings = dict(line.split("=", 1) for line in file.read_text().splitlines())
        names = [f"NODE{number + 1}" for number in range(len(ports))]
        real = [f"{name}://127.0.0.1:{each[index][0]}" for name, each in zip(names, ports, strict=True)]
        proxied = [f"{name}://127.0.0.1:{each[index][1]}" for name, each in zip(names, ports, strict=True)]
        settings["listeners"] = ",".join([settings["listeners"], *real])
        # The last one is where `Cluster` connects.
        settings["advertised.listeners"] = ",".join([*proxied, settings["advertised.listeners"]])
        protocols = [settings["listener.security.protocol.map"], *(f"{name}:PLAINTEXT" for name in names)]
        settings["listener.security.protocol.map"] = ",".join(protocols)
        settings["num.network.threads"] = "1"
        kafka_java.write_settings(file, settings)
    return cluster


def _stop(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        if broker.pid is not None:
            # A broker that shuts down in order waits for the others, which may be gone.
            broker.signal(signal.SIGKILL)
