"""Where attacks on nodes on Kafka happen: two nodes that share three brokers, beside a neighbour.

The neighbour is at the first node. It sends, sends with numbers, opens idempotent producers, reads in a
consumer group, and claims a partition in another one.
"""

import os
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.config import Limits
from attack.load import attacker_s
from attack.neighbour import NEIGHBOUR_OF_KAFKA, neighbour
from attack.peer import Peer
from attack.room import Room, end, pace
from attack.settings import FULL, MALLORY, NINA, SMALL, TIMES, token, trusting, write_node
from bench.process import usage
from bench.products import kafka_cluster
from bench.products.kafka_cluster import Cluster
from bench.products.kafka_node import KafkaNode

NUMBERED_SMALL: Final = 8
"""Idempotent producers of a node in the short form. The long form has the default."""
NUMBERED: Final = 64
EVERY_S_SMALL: Final = "0.2"
STARTS_MAX: Final = 5
IDLE_MS: Final = 120_000
"""An attacker that waits for Kafka sends nothing meanwhile."""
LOGS: Final = ("m-log:4", "n-log:1", *(f"{log}:1" for log in NEIGHBOUR_OF_KAFKA.values()))
_HOME: Final = re.compile(r'^amqp_streams_home_buckets\{bucket="(\d+)"\} 1', re.MULTILINE)


@dataclass
class KafkaRoom(Room):
    """`process` is the node of the neighbour, `other` another one. `numbered`: `kafka.numbered`."""

    other: KafkaNode = field(kw_only=True)
    cluster: Cluster = field(kw_only=True)
    numbered: int = field(kw_only=True)
    _other_read: int = 0

    def peer_at(self, node: int, user: str = MALLORY, **options: Any) -> Peer:
        """A connection to the first node (0), or to the other one (1)."""
        address = (self.process, self.other)[node].addresses["amqp"][0]
        return Peer(address, Credentials(token=self.token(user)), **options).opened()

    def homes_at_other(self) -> set[int]:
        """The buckets of groups whose home is the other node."""
        words = self.ask("GET", "/metrics", user=None, address=self.other.addresses["admin"][0])[1]
        return {int(bucket) for bucket in _HOME.findall(words)}

    def is_well(self) -> list[str]:
        """See `Room.is_well`: of both nodes."""
        complaints = super().is_well()
        if self.other.process is None or self.other.process.poll() is not None:
            return [*complaints, f"the other node has ended: {self.other.words[-500:]}"]
        new = self.other.words[self._other_read :]
        self._other_read += len(new)
        if "Traceback" in new:
            complaints.append(f"a traceback of the other node: {new[new.index('Traceback') :][:1500]}")
        return complaints

    def all_cpu_s(self) -> float:
        """CPU seconds of nodes, brokers, neighbour and attacker so far."""
        used = self.cpu_s() + usage(self.neighbour.pid).cpu_seconds + attacker_s()
        for broker in self.cluster.brokers:
            with suppress(ProcessLookupError):
                used += usage(broker.pid).cpu_seconds if broker.pid is not None else 0.0
        return used

    def _pids(self) -> list[int]:
        return [self.process.pid, self.other.pid]


def why_not() -> str:
    """Why there is no such room here; empty if there is."""
    return kafka_cluster.why_not()


@contextmanager
def kafka_room(folder: Path, *, is_small: bool, cluster: Cluster | None = None) -> Iterator[KafkaRoom]:
    """Two nodes on Kafka. `cluster`: brokers that run; None: brokers of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        brokers = cluster or stack.enter_context(_brokers(folder / "brokers"))
        limits = {**TIMES, **(SMALL if is_small else FULL), "idle_timeout_ms": IDLE_MS}
        numbered = NUMBERED_SMALL if is_small else NUMBERED
        secret = secrets.token_hex(32)
        prefix = f"a{uuid.uuid4().hex[:12]}"
        nodes = []
        for number in range(2):
            more = f'servers = "{brokers.servers}"\nprefix = "{prefix}"\nnumbered = {numbered}\n'
            options = _options(folder / f"node-{number}", secret, limits, more)
            node = KafkaNode(folder / f"node-{number}", *options, log=LOGS)
            stack.push(node.__exit__)
            nodes.append(_started(node))
        settings = {"amqp": nodes[0].url, "token": token(secret, NINA), "log": "n-log", **NEIGHBOUR_OF_KAFKA}
        # Nothing of a node on Kafka waits for the disk of this machine alone.
        paced = {"every_s": EVERY_S_SMALL} if is_small else pace(is_small=False)
        working = stack.enter_context(neighbour(**paced, **settings))
        working.begin()
        first, other = nodes
        tls = trusting(folder / "node-0")
        yield KafkaRoom(
            folder, is_small, Limits(**limits), secret, working, first, tls, other=other, cluster=brokers,
            numbered=numbered,
        )  # fmt: skip
        for node in reversed(nodes):
            end(node)


def _started(node: KafkaNode) -> KafkaNode:
    """Start it, as a service manager does: again, if brokers that have just started do not answer in time."""
    for _ in range(STARTS_MAX - 1):
        with suppress(RuntimeError):
            return node.start()
        node.kill()
    return node.start()


def _options(folder: Path, secret: str, limits: Mapping[str, int], kafka: str) -> tuple[str, ...]:
    folder.mkdir()
    config = write_node(folder, secret, limits)
    shared = folder.parent / "node-secret"
    if not shared.exists():
        os.close(os.open(shared, os.O_CREAT | os.O_WRONLY, 0o600))
        shared.write_text(secrets.token_hex(32))
    with config.open("a") as file:
        file.write(f'[kafka]\n{kafka}[node]\nlisten = "127.0.0.1:0"\nsecret_file = "{shared}"\n')
    return ("--config", str(config), "--store", "kafka", "--admin-listen", "127.0.0.1:0")


@contextmanager
def _brokers(folder: Path) -> Iterator[Cluster]:
    cluster = kafka_cluster.made(folder)
    try:
        for broker in cluster.brokers:
            broker.start(with_parent=True)
        cluster.await_ready()
        yield cluster
    finally:
        cluster.stop()
