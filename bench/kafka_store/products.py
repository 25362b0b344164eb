"""The products of the comparison: each is started, measured cell by cell, and stopped."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from bench import load
from bench.amqp.processes import cpu_and_rss, wait_quiet
from bench.amqp.rabbit import Rabbit, rabbit_class
from bench.amqp.targets import Options
from bench.kafka_store import cells, far, numbered
from bench.kafka_store.cells import IN_BATCHES, ONE_BY_ONE, Cell, Figure
from bench.process import usage
from bench.products import kafka_broker, kafka_cluster
from bench.products.kafka_cluster import Cluster
from bench.products.places import home
from bench.server import Server, running

KAFKA: Final = "node on Kafka"
KAFKA_BEFORE: Final = "node on Kafka, before"
DIRECT: Final = "confluent-kafka"
DIRECTORY: Final = "node with a directory"
BEFORE: Final = "the same, before"
RABBIT: Final = "RabbitMQ quorum queue"
PRODUCTS: Final = (KAFKA, KAFKA_BEFORE, DIRECT, DIRECTORY, BEFORE, RABBIT)
WARM_UP: Final = 50_000
COUNTS: Final = {(IN_BATCHES, 100): 1_000_000, (IN_BATCHES, 1024): 200_000, (ONE_BY_ONE, 100): 200_000}
"""Events of a run, by how and size. Few enough that all parts take less than six minutes."""
RATE: Final = 1000
PACED_COUNT: Final = 4000


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    `share`: of the events of each cell. `against`: another source tree, whose nodes are measured as well.
    `readers`, `backlog`: see `far.measure`.
    """

    cells: Sequence[Cell]
    rounds: int
    share: float
    against: str | None
    paced: bool
    readers: Sequence[int]
    backlog: int
    numbered: bool = False

    def count(self, cell: Cell) -> int:
        """The events of a run of a cell."""
        return int(COUNTS[cell.how, cell.size] * self.share)


@dataclass(slots=True)
class Found:
    """What was measured, by product and cell; latencies in milliseconds by product; and what failed."""

    figures: dict[tuple[str, Cell], list[Figure]] = field(default_factory=dict)
    latencies: dict[str, Mapping[str, float]] = field(default_factory=dict)
    shares: list[far.Shares] = field(default_factory=list)
    producers: dict[str, numbered.Sent] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def note(self, product: str, cell: Cell, measure: Callable[[], Figure]) -> None:
        """Measure one cell of one product."""
        wait_quiet(1.0)
        try:
            found = measure()
        except RuntimeError as error:
            self.failures.append(f"{product}, {cell.name}: {error}")
            return
        self.figures.setdefault((product, cell), []).append(found)
        tell(
            f"{product}: {cell.name}: {found.rate:,.0f}/s; CPU us: node or broker {found.serving_us:.2f},"
            f" Kafka {found.brokers_us:.2f}, client {found.client_us:.2f}"
        )

    def median(self, product: str, cell: Cell) -> Figure | None:
        """The medians of a cell; None if it was not measured."""
        several = self.figures.get((product, cell))
        return cells.median(several) if several else None


class Bench:
    """Measures all products by a plan."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.found: Final = Found()
        self._plan: Final = plan
        self._folder: Final = folder

    def with_kafka(self) -> None:
        """Measure the node on Kafka and confluent-kafka, in turns, with the same brokers."""
        plan, found = self._plan, self.found
        with _cluster(self._folder / "brokers") as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
            pairs = len(plan.cells) // 2
            names = [f"e{number}" for number in range(plan.rounds * pairs)]
            far_logs = [f"far{readers}" for readers in plan.readers]
            logs = [f"{name}:1" for name in ("warm", "paced", "numbered", *far_logs, *names)]
            with ExitStack() as stack:
                node = running(self._folder / "kafka", logs=logs, kafka=cluster.servers)
                server = stack.enter_context(node)
                nodes = {KAFKA: ("", server)}
                _warm_up(server, cluster, admin)
                if plan.against is not None and plan.cells:
                    nodes[KAFKA_BEFORE] = ("b", stack.enter_context(self._before(names, cluster)))
                for number in range(plan.rounds):
                    for index, cell in enumerate(plan.cells):
                        # What is read is what was sent: cells come in pairs.
                        name = names[number * pairs + index // 2]
                        if cell.way == "in":
                            _topic(admin, f"direct.{name}")
                        self._kafka_cell(cell, number, name, nodes, cluster)
                if plan.paced:
                    self._paced(KAFKA, server.url, "paced")
                    _topic(admin, "direct.paced")
                    self._paced_directly(cluster)
                if plan.numbered:
                    found.producers |= numbered.measure(server.url, "numbered")
                for readers in plan.readers:
                    found.shares.append(far.measure(server, f"far{readers}", readers, plan.backlog))

    def with_directory(self) -> None:
        """Measure the node with a data directory, and that of another source tree."""
        plan = self._plan
        trees: dict[str, Mapping[str, str]] = {DIRECTORY: {}}
        if plan.against is not None:
            trees = {BEFORE: {"PYTHONPATH": plan.against}, **trees}
        logs = [*(f"e{index}:1" for index in range(len(plan.cells))), "warm:1", "paced:1"]
        for number in range(plan.rounds):
            for product in list(trees)[:: 1 if number % 2 == 0 else -1]:
                folder = self._folder / f"{product}{number}"
                with running(folder, logs=logs, environment=trees[product]) as server:
                    load.run("send", server.url, "warm", count=WARM_UP)
                    addresses = [f"e{index // 2 * 2}" for index in range(len(plan.cells))]
                    for cell, address in zip(plan.cells, addresses, strict=True):
                        command = cells.amqp(cell, server.url, address, plan.count(cell))
                        self._measure(product, cell, command, serving=_seconds(server))
                    if plan.paced and number == 0:
                        self._paced(product, server.url, "paced")

    def with_rabbit(self) -> None:
        """Measure RabbitMQ."""
        plan = self._plan
        if home("rabbitmq") is None:
            self.found.failures.append(f"{RABBIT}: not installed: make peers")
            return
        with _rabbit(self._folder / "rabbit") as rabbit:
            for mode in ("send", "recv"):
                load.run(mode, rabbit.url, rabbit.cold_address(), count=WARM_UP, run_id=1)
            address = ""
            for cell in [cell for _ in range(plan.rounds) for cell in plan.cells if cell.how == ONE_BY_ONE]:
                if cell.way == "in":
                    address = rabbit.new_address()
                    rabbit.prepare(address)
                reading = ("--linger-ms", "200")
                command = cells.amqp(cell, rabbit.url, address, plan.count(cell), reading=reading)
                self._measure(RABBIT, cell, command, serving=lambda: cpu_and_rss(rabbit.pids())[0])
            if plan.paced:
                address = rabbit.new_address()
                rabbit.prepare(address)
                self._paced(RABBIT, rabbit.url, address, ())

    @contextmanager
    def _before(self, names: Sequence[str], cluster: Cluster) -> Iterator[Server]:
        """The node of the other source tree, with logs of its own."""
        assert self._plan.against is not None
        with running(
            self._folder / "kafka-before",
            logs=[f"b{name}:1" for name in (*names, "warm")],
            kafka=cluster.servers,
            environment={"PYTHONPATH": self._plan.against},
        ) as server:
            for way in ("in", "out"):
                cells.generated(cells.amqp(Cell(IN_BATCHES, way, 100), server.url, "bwarm", WARM_UP))
            yield server

    def _kafka_cell(
        self, cell: Cell, number: int, name: str, nodes: Mapping[str, tuple[str, Server]], cluster: Cluster
    ) -> None:
        """`nodes`: by product, what the names of its logs begin with, and the node."""
        count, brokers = self._plan.count(cell), partial(_brokers_seconds, cluster)
        ours = [
            partial(
                self._measure,
                product,
                cell,
                cells.amqp(cell, server.url, f"{begin}{name}", count),
                serving=_seconds(server),
                brokers=brokers,
            )
            for product, (begin, server) in nodes.items()
        ]
        command = cells.direct(cell, cluster.servers, f"direct.{name}", count)
        theirs = partial(self._measure, DIRECT, cell, command, serving=float, brokers=brokers)
        # One by one, Kafka has nothing to compare with: its clients always send batches.
        runs = [*ours, theirs] if cell.how == IN_BATCHES else ours
        for run in runs[:: 1 if number % 2 == 0 else -1]:
            run()

    def _measure(
        self,
        product: str,
        cell: Cell,
        command: Sequence[str],
        *,
        serving: Callable[[], float],
        brokers: Callable[[], float] = float,
    ) -> None:
        count = self._plan.count(cell)
        self.found.note(product, cell, partial(cells.run, command, count, serving=serving, brokers=brokers))

    def _paced_directly(self, cluster: Cluster) -> None:
        """Kafka's own latency, with its C client: a program in Python would measure its own pauses."""
        folder = home(kafka_broker.LOAD)
        if folder is None:
            self.found.failures.append(f"{DIRECT}, {RATE} a second: not installed: make peers")
            return
        wait_quiet(1.0)
        command = [
            str(folder / "kafka_load"),
            "latency",
            "--broker",
            cluster.servers,
            "--topic",
            "direct.paced",
        ]
        command += ["--count", str(PACED_COUNT), "--size", "100", "--rate", str(RATE)]
        command += ["--linger", str(kafka_broker.LINGER_MS)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            self.found.failures.append(f"{DIRECT}, {RATE} a second: {done.stdout} {done.stderr}")
            return
        found = json.loads(done.stdout.splitlines()[-1])
        self.found.latencies[DIRECT] = {"p50": found["p50_ms"], "p99": found["p99_ms"]}
        tell(f"{DIRECT}: {RATE}/s: {self.found.latencies[DIRECT]} ms")

    def _paced(self, product: str, url: str, address: str, reading: Sequence[str] = load.FROM_LATEST) -> None:
        wait_quiet(1.0)
        run = load.run("latency", url, address, count=PACED_COUNT, options=("--rate", str(RATE), *reading))
        if not run.ok:
            self.found.failures.append(f"{product}, {RATE} a second: {run.error}")
            return
        self.found.latencies[product] = run.figures["latency_ms"]
        tell(f"{product}: {RATE}/s: {run.figures['latency_ms']} ms")


def _warm_up(server: Server, cluster: Cluster, admin: AdminClient) -> None:
    """Let the Java of the brokers compile what both ways need."""
    _topic(admin, "direct.warm")
    for way in ("in", "out"):
        cell = Cell(IN_BATCHES, way, 100)
        for command in (
            cells.amqp(cell, server.url, "warm", WARM_UP),
            cells.direct(cell, cluster.servers, "direct.warm", WARM_UP),
        ):
            cells.generated(command)


def _topic(admin: AdminClient, name: str) -> None:
    config = {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(name, 1, 3, config=config)])[name].result(60)


@contextmanager
def _cluster(folder: Path) -> Iterator[Cluster]:
    cluster = kafka_cluster.made(folder)
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        for broker in cluster.brokers:
            broker.start(with_parent=True)
        cluster.await_ready()
        yield cluster


@contextmanager
def _rabbit(folder: Path) -> Iterator[Rabbit]:
    root = home("rabbitmq")
    assert root is not None, "the caller has looked"
    options = Options(work=str(folder), start_timeout=90)
    rabbit = rabbit_class("quorum", str(root))("rabbit4-quorum", options)
    assert isinstance(rabbit, Rabbit)
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.stop()


def _brokers_seconds(cluster: Cluster) -> float:
    pids = [broker.pid for broker in cluster.brokers]
    return sum(usage(pid).cpu_seconds for pid in pids if pid is not None)


def _seconds(server: Server) -> Callable[[], float]:
    return lambda: server.usage().cpu_seconds


def tell(words: str) -> None:
    """Say how far it is."""
    print(words, file=sys.stderr, flush=True)
