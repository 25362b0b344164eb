"""[io] Three Kafka brokers on loopback, for tests and for people: `make kafka`, `make kafka-stop`.

    python -m bench.products.kafka_cluster start | stop | status [--folder build/kafka]

Each broker is broker and controller (KRaft), so the cluster survives the loss of one. The folder has for
broker N: `N.pid`, `N.log`, `N.properties` and its data `N/`. A broker is stopped by its pid, after a look at
its command line. Heaps are small: the brokers are for tests, those of `kafka_broker` for measurements.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.products import kafka_java
from bench.products.install import installed
from bench.products.places import PROJECT, home, why_missing
from bench.server import free_port

COUNT: Final = 3
FOLDER: Final = PROJECT / "build" / "kafka"
START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 30.0
_MEMORY: Final = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss256k")
_SMALL: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # A compacted topic is compacted within a second, too.
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    # Retention by size and age is visible to a test after a second instead of minutes.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    # Otherwise the controller writes a record twice a second, which takes a fifth of what idle brokers take.
    "metadata.max.idle.interval.ms": "0",
    "num.io.threads": "2",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "4",
}


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of a cluster, running or not. `number`: from 1."""

    number: int
    port: int
    folder: Path

    @property
    def server(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What the broker printed, in all its runs."""
        return self.folder / f"{self.number}.log"

    @property
    def pid(self) -> int | None:
        """The broker's process; None if it does not run."""
        file = self.folder / f"{self.number}.pid"
        pid = int(file.read_text()) if file.is_file() else None
        return pid if pid is not None and self._runs(pid) else None

    def start(self, *, with_parent: bool = False) -> None:
        """Start the process; it is not ready yet. `with_parent`: the kernel ends it with this process."""
        assert self.pid is None, f"broker {self.number} runs"
        folder = home("kafka")
        assert folder is not None, "the caller has looked"
        command = kafka_java.command(folder, _MEMORY, kafka_java.BROKER, str(self._settings))
        # A run of tests that is killed must not leave three brokers behind.
        tied = ["setpriv", "--pdeathsig", "KILL"] if with_parent and shutil.which("setpriv") else []
        with self.log.open("ab") as words:
            process = subprocess.Popen(
                [*tied, *command],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=not with_parent,
            )
        (self.folder / f"{self.number}.pid").write_text(f"{process.pid}\n")
        _STARTED[process.pid] = process

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process: SIGKILL, SIGSTOP, SIGCONT."""
        pid = self.pid
        assert pid is not None, f"broker {self.number} does not run"
        os.kill(pid, number)
        if number is signal.SIGKILL:
            self._ended(pid)
        elif number is signal.SIGSTOP:
            _stands_still(pid)

    def stop(self) -> None:
        """End the process, if it runs: in order, or after `STOP_S_MAX` by force."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
        try:
            self._ended(pid)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._ended(pid)

    @property
    def _settings(self) -> Path:
        return self.folder / f"{self.number}.properties"

    def _runs(self, pid: int) -> bool:
        """Whether the process is this broker: another process may have its pid after a restart."""
        if pid in _STARTED:
            return _STARTED[pid].poll() is None
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(self._settings).encode() in words

    def _ended(self, pid: int) -> None:
        latest = time.monotonic() + STOP_S_MAX
        while self._runs(pid):
            if time.monotonic() > latest:
                message = f"broker {self.number} (pid {pid}) has not ended after {STOP_S_MAX:.0f} s"
                raise TimeoutError(message)
            time.sleep(0.05)
        (self.folder / f"{self.number}.pid").unlink(missing_ok=True)


def _stands_still(pid: int) -> None:
    """Wait until all threads are stopped: one that still runs may answer a request.

    Raises:
        TimeoutError: some are not.
    """
    latest = time.monotonic() + STOP_S_MAX
    while not all(map(_is_stopped, Path(f"/proc/{pid}/task").glob("*/stat"))):
        if time.monotonic() > latest:
            message = f"process {pid} does not stand still"
            raise TimeoutError(message)
        time.sleep(0.001)


def _is_stopped(thread: Path) -> bool:
    try:
        return thread.read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return True


_STARTED: Final[dict[int, "subprocess.Popen[bytes]"]] = {}
"""The brokers that this process started: without a `poll` they would stay as zombies."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers that form a cluster."""

    folder: Path
    brokers: tuple[Broker, ...]

    @property
    def servers(self) -> str:
        """Where clients begin."""
        return ",".join(broker.server for broker in self.brokers)

    def await_ready(self, count: int | None = None) -> None:
        """Wait until this many brokers (all of them) are in the cluster.

        Raises:
            RuntimeError: a broker ended, or they need too long.
        """
        client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wanted = len(self.brokers) if count is None else count
        latest = time.monotonic() + START_S_MAX
        while True:
            running = [broker for broker in self.brokers if broker.pid is not None]
            try:
                if len(client.list_topics(timeout=2.0).brokers) >= wanted:
                    return
            except KafkaException:
                time.sleep(0.2)
            if len(running) < wanted or time.monotonic() > latest:
                ended = next((broker for broker in self.brokers if broker.pid is None), self.brokers[0])
                message = f"{len(running)} of {wanted} brokers run: {ended.log.read_text()[-1000:]}"
                raise RuntimeError(message)
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop all brokers."""
        for broker in self.brokers:
            if (pid := broker.pid) is not None:
                # All at once: one after another, each would wait for the others to take over.
                os.kill(pid, signal.SIGTERM)
        for broker in self.brokers:
            broker.stop()


def why_not() -> str:
    """Why brokers cannot run here; empty if they can."""
    return kafka_java.why_no_java() or why_missing("kafka").replace("make peers", "make kafka")


def made(folder: Path, *, settings: Mapping[str, str] | None = None, count: int = COUNT) -> Cluster:
    """Make a new cluster of `count` brokers in `folder`, which is emptied. No broker runs yet.

    `settings`: more settings of each broker.
    """
    kafka = home("kafka")
    assert kafka is not None, "the caller has looked"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ports = [(free_port(), free_port()) for _ in range(count)]
    voters = ",".join(f"{number}@127.0.0.1:{ports[number - 1][1]}" for number in range(1, count + 1))
    for number, (port, controller) in enumerate(ports, 1):
        given = broker_settings(folder / str(number), number, port, controller, voters=voters, count=count)
        kafka_java.write_settings(folder / f"{number}.properties", given | dict(settings or {}))
    with (folder / "format.log").open("ab") as words:
        kafka_java.format_data(kafka, folder / "1.properties", words)
    for number in range(2, count + 1):
        # Copied, because a start of Java takes seconds. The broker makes a new id of its directory.
        shutil.copytree(folder / "1", folder / str(number))
        file = folder / str(number) / "meta.properties"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("directory.id")]
        file.write_text("\n".join(lines).replace("node.id=1", f"node.id={number}") + "\n")
    return found(folder)


def found(folder: Path) -> Cluster:
    """The cluster that `made` left in `folder`; without brokers if there is nothing."""
    brokers = []
    for file in sorted(folder.glob("*.properties")):
        words = dict(line.split("=", 1) for line in file.read_text().splitlines())
        brokers.append(Broker(int(file.stem), int(words["advertised.listeners"].rsplit(":", 1)[1]), folder))
    return Cluster(folder, tuple(brokers))


def broker_settings(
    data: Path, number: int, port: int, controller: int, *, voters: str, count: int
) -> dict[str, str]:
    """The settings of one broker: like a cluster for production, but for its sizes."""
    server, replicas, in_sync = f"PLAINTEXT://127.0.0.1:{port}", min(3, count), min(2, count)
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "listeners": f"{server},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": server,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        **{f"{topic}.replication.factor": str(replicas) for topic in internal},
        **_SMALL,
    }


def main() -> int:
    """Start, stop or show the cluster of a folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.products.kafka_cluster", description=__doc__)
    parser.add_argument("what", choices=("start", "stop", "status"))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    cluster = found(options.folder)
    if options.what == "start" and not any(broker.pid for broker in cluster.brokers):
        if not installed("kafka") or kafka_java.why_no_java():
            print(f"Kafka: {why_not()}", file=sys.stderr)
            return 1
        cluster = made(options.folder)
        for broker in cluster.brokers:
            broker.start()
        cluster.await_ready()
    elif options.what == "stop":
        cluster.stop()
    for broker in cluster.brokers:
        state = f"runs, pid {broker.pid}" if broker.pid else "does not run"
        print(f"broker {broker.number} {broker.server}: {state}; log {broker.log}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
