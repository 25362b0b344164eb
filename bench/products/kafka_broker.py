"""One Kafka broker without ZooKeeper on loopback ports, and its load generator on librdkafka.

The broker syncs each appended batch before it is acknowledged (`log.flush.interval.messages=1`), like our
node. Heap and garbage collector are those of `bin/kafka-server-start.sh`. A topic appears with its first
producer and has `PARTITIONS` partitions; producer i uses partition i.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.process import Usage, usage
from bench.products import kafka_java
from bench.products.places import home, why_missing
from bench.server import free_port, stop

PARTITIONS: Final = 4
START_S_MAX: Final = 120.0
WARM_UP: Final = 100_000
LINGER_MS: Final = 5
_MEMORY: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOAD: Final = "kafka-load"
"""The product that has the load generator."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running broker."""

    process: "subprocess.Popen[bytes]"
    server: str
    generator: Path

    def usage(self) -> Usage:
        """What the broker uses now."""
        return usage(self.process.pid)

    def load(self, mode: str, topic: str, **options: object) -> dict[str, Any]:
        """Run the generator: `mode` is send, recv or latency. Its line of JSON.

        Raises:
            RuntimeError: not everything was accepted or arrived.
        """
        command = [str(self.generator), mode, "--broker", self.server, "--topic", topic]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            message = f"kafka_load {mode} ended with {done.returncode}: {done.stdout} {done.stderr}"
            raise RuntimeError(message)
        result: dict[str, Any] = json.loads(lines[-1])
        return result


def version() -> str:
    """The version of the installed Kafka; empty if it is not installed."""
    folder = home("kafka")
    names = [path.name for path in (folder / "libs").glob("kafka-clients-*.jar")] if folder else []
    return names[0].removeprefix("kafka-clients-").removesuffix(".jar") if names else ""


def settings(data: Path, port: int, controller: int) -> dict[str, str]:
    """The broker's settings: one node that is broker and controller, everything on loopback."""
    server = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{server},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": server,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "num.partitions": str(PARTITIONS),
        "log.flush.interval.messages": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


@contextmanager
def running(work: Path) -> Iterator[Kafka]:
    """Run a broker with empty data below `work`, warmed up.

    Raises:
        RuntimeError: it is not installed, or does not start.
    """
    folder, load = home("kafka"), home(LOAD)
    if folder is None or load is None:
        message = f"Kafka: {why_missing('kafka', LOAD)}"
        raise RuntimeError(message)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    port, controller = free_port(), free_port()
    file = kafka_java.write_settings(work / "server.properties", settings(work / "data", port, controller))
    with (work / "broker.log").open("ab") as words:
        kafka_java.format_data(folder, file, words)
        command = kafka_java.command(folder, _MEMORY, kafka_java.BROKER, str(file))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
    broker = Kafka(process, f"127.0.0.1:{port}", load / "kafka_load")
    try:
        _await(broker, work / "broker.log")
        broker.load("send", "warm", count=WARM_UP, size=100, window=0, linger=LINGER_MS)
        broker.load("recv", "warm", count=WARM_UP, size=100)
        yield broker
    finally:
        stop(process)
        shutil.rmtree(work, ignore_errors=True)


def _await(broker: Kafka, words: Path) -> None:
    """Wait until a message is accepted."""
    latest = time.monotonic() + START_S_MAX
    while True:
        if broker.process.poll() is not None:
            message = f"Kafka ended while starting: {words.read_text()[-1000:]}"
            raise RuntimeError(message)
        try:
            broker.load("send", "first", count=1, size=100, timeout=5)
        except RuntimeError:
            if time.monotonic() > latest:
                raise
            time.sleep(0.2)
        else:
            return
