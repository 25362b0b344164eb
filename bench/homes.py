"""`python -m bench.homes`: how long the steps of a home on Kafka take, with three brokers on this machine.

A fence of a bucket (a new producer, with an earlier one of the same bucket), a commit of 1 and of 1,000
records, a node that starts and reads a bucket with 10,000 keys, and a node that stops in order, until the
other node serves its buckets. Prints the median and the longest of `--rounds` (of a quarter of them for the
last step); with `--json FILE` writes all times in ms.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import StorageError
from amqp_streams.homes.bucket import Phase
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.home import Home
from amqp_streams.homes.leases import Times
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.sharing.following import StateFollower
from amqp_streams.kafka.sharing.producing import BucketProducer, Outcome
from amqp_streams.kafka.sharing.state_topic import find_or_create
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.server.homes.home_shell import TICK_S, HomeShell
from amqp_streams.testing import ManualLoop
from bench.products import kafka_cluster

KEYS: Final = 10_000
VALUE: Final = b"x" * 100
TOPIC: Final = "bench.state"


def boot_ms() -> int:
    """CLOCK_BOOTTIME in ms."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Node:
    """A node that is only a home, without links."""

    def __init__(self, name: str, bench: "Bench", found: FoundTopic, options: KafkaOptions) -> None:
        self.loop: Final = ManualLoop()
        self.left = False
        self.shell: Final = HomeShell(
            Home(name, name, lambda _: None, settings=GroupSettings(), limits=Limits(), times=Times()),
            options,
            bench.administration,
            found,
            loop_call=self.loop.call,
            boot_ms=boot_ms,
            wall_ms=lambda: int(time.time() * 1000),
            on_reply=lambda _reply: None,
            on_home=lambda _bucket, _record: None,
            on_left=self._gone,
        )

    def _gone(self) -> None:
        self.left = True

    @property
    def serves(self) -> int:
        """How many buckets have their home here, and may decide."""
        return sum(each.phase is Phase.SERVING for each in self.shell.home.buckets.values())


class Bench:
    """The steps, and their times in ms."""

    def __init__(self, servers: str) -> None:
        self.connection: Final[dict[str, object]] = {"bootstrap.servers": servers, "log_level": 0}
        self.administration: Final = Administration(self.connection)
        self.topic: Final[FoundTopic] = find_or_create(
            self.administration, TOPIC, BUCKETS, replicas=3, weak=False
        )
        self.times_ms: Final[dict[str, list[float]]] = {}

    def fenced(self, bucket: int, what: str) -> BucketProducer:
        """A producer that has fenced, with the time that it took."""
        began = time.monotonic()
        producer = BucketProducer(
            self.connection, TOPIC, bucket, transactional_id=f"bench.bucket.{bucket}", boot_ms=boot_ms
        )
        producer.fence(60)
        self._note(what, began)
        return producer

    def commit(self, producer: BucketProducer, what: str, changes: Mapping[str, bytes | None]) -> bool:
        """Commit, and note the time. Returns whether the producer can be used again."""
        began = time.monotonic()
        ended = producer.commit(changes)
        self._note(what, began)
        return ended.outcome is Outcome.COMMITTED

    def load(self, bucket: int, what: str) -> None:
        """Start to follow the topic, and load a bucket."""
        loop, answers = ManualLoop(), list[Mapping[str, bytes] | StorageError]()
        began = time.monotonic()
        follower = StateFollower(
            self.connection,
            self.administration,
            self.topic,
            loop_call=loop.call,
            boot_ms=boot_ms,
            on_changes=lambda _bucket, _changes: None,
            on_lost=lambda _buckets, _why: None,
        )
        follower.load(bucket, answers.append)
        loop.run_until(lambda: bool(answers))
        self._note(what, began)
        answer = answers[0]
        follower.close()
        if isinstance(answer, StorageError):
            raise answer
        assert len(answer) == KEYS, f"{len(answer)} keys"

    def hand_over(self, rounds: int, what: str) -> None:
        """Start a second node, and stop the first one in order, again and again."""
        names = TopicNames("bench-homes")
        found = find_or_create(self.administration, names.state, 2, replicas=3, weak=False)
        options = KafkaOptions(self.connection, names)
        old = Node("n.0", self, found, options)
        _run_until(lambda: old.serves == found.settings.partitions, old)
        for number in range(rounds):
            old = self._hand_over(old, Node(f"n.{number + 1}", self, found, options), what)
        old.shell.close(60)

    def _hand_over(self, old: Node, new: Node, what: str) -> Node:
        _run_until(lambda: old.serves == new.serves == 1, old, new)
        began = time.monotonic()
        old.shell.stop()
        _run_until(lambda: new.serves == 2, old, new)
        self._note(what, began)
        _run_until(lambda: old.left, old, new)
        old.shell.close(60)
        return new

    def _note(self, what: str, began: float) -> None:
        self.times_ms.setdefault(what, []).append((time.monotonic() - began) * 1000)


def _run_until(condition: Callable[[], bool], *nodes: Node) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, [node.shell.problems for node in nodes]
        for node in nodes:
            node.loop.run_ready()
            node.shell.tick()
        time.sleep(TICK_S / 10)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.homes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if why := kafka_cluster.why_not():
        print(f"Kafka: {why}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="homes-") as name:
        cluster = kafka_cluster.made(Path(name) / "cluster")
        try:
            for broker in cluster.brokers:
                broker.start(with_parent=True)
            cluster.await_ready()
            times_ms = measured(cluster.servers, options.rounds)
        finally:
            cluster.stop()
    print(f"{'step':28} {'median ms':>10} {'longest ms':>11} {'times':>6}")
    for what, found in times_ms.items():
        print(f"{what:28} {median(found):10.0f} {max(found):11.0f} {len(found):6}")
    if options.json is not None:
        options.json.write_text(json.dumps(times_ms))
    return 0


def measured(servers: str, rounds: int) -> dict[str, list[float]]:
    """All steps, `rounds` times each."""
    bench = Bench(servers)
    bench.fenced(0, "first fence of the cluster").close()
    small: dict[str, bytes | None] = {"home": VALUE}
    large: dict[str, bytes | None] = {f"{number}": VALUE for number in range(1000)}
    producer = bench.fenced(0, "fence")
    for _ in range(rounds):
        for what, changes in (("commit of 1 record", small), ("commit of 1,000 records", large)):
            if not bench.commit(producer, what, changes):
                producer.close()
                producer = bench.fenced(0, "fence")
        successor = bench.fenced(0, "fence")
        producer.close()
        producer = successor
    producer.close()
    writer = bench.fenced(1, "fence")
    written = writer.commit({f"cursor/{number}": VALUE for number in range(KEYS)}, 60)
    if written.outcome is not Outcome.COMMITTED:
        print(f"in doubt: {written.reason}", file=sys.stderr)
    writer.close()
    for _ in range(rounds):
        bench.load(1, f"start, and read {KEYS} keys")
    bench.hand_over(max(1, rounds // 4), "orderly stop to next home")
    return bench.times_ms


if __name__ == "__main__":
    sys.exit(main())
