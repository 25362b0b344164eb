"""What librdkafka and the brokers say about themselves, as figures for operators. Pure.

librdkafka calls `failed` and `statistics` in its threads; `figures` is read on the event loop's thread.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from amqp_streams.storage.questions import Figure

STATISTICS_MS: Final = 5000
"""How often librdkafka reports: parsing costs about 10 ms for 1,000 partitions."""
KINDS_MAX: Final = 100
_UP: Final = "UP"


class Failure(Protocol):
    """An error of librdkafka."""

    def name(self) -> str:
        """The name of its kind, for example `_TRANSPORT`."""


@dataclass(frozen=True, slots=True)
class Replication:
    """How many partitions have no leader, too few replicas in sync for their topic, or not all in sync."""

    leaderless: int = 0
    short: int = 0
    behind: int = 0

    def __add__(self, other: "Replication") -> "Replication":
        return Replication(
            self.leaderless + other.leaderless, self.short + other.short, self.behind + other.behind
        )


@dataclass(frozen=True, slots=True)
class _BrokerFigures:
    """What librdkafka's producer reports of its connection to a broker. Times in seconds."""

    up: bool
    round_trip: float
    throttle: float
    timeouts: int


class KafkaFigures:
    """The figures of one store."""

    def __init__(self) -> None:
        self.pending_events = 0
        """Events that were handed to Kafka, or wait for it, and have no outcome."""
        self.replication = Replication()
        self.held_back = 0
        """Partitions of which a transaction has held back events for a minute."""
        self.lost_events = 0
        """Numbers of accepted events that Kafka lost, as far as this node knew them."""
        self._errors: Final[Counter[str]] = Counter()
        self._brokers: Mapping[str, _BrokerFigures] = {}

    def failed(self, error: Failure) -> None:
        """Count an error of a client of Kafka."""
        # A tuple of names that Kafka can extend: the number of series stays bounded.
        kind = error.name().removeprefix("_").lower()
        self._errors[kind if kind in self._errors or len(self._errors) < KINDS_MAX else "other"] += 1

    def statistics(self, text: str) -> None:
        """Take in a report of librdkafka: see its STATISTICS.md."""
        brokers: Mapping[str, Mapping[str, Any]] = json.loads(text).get("brokers", {})
        # Brokers without a number are addresses to begin with, and connections to coordinators.
        self._brokers = {
            f"{each['nodeid']}": _broker(each) for each in brokers.values() if each.get("nodeid", -1) >= 0
        }

    def figures(self) -> Iterator[Figure]:
        """The figures of this moment."""
        yield _gauge("pending_events", "Events that Kafka has not yet acknowledged.", self.pending_events)
        yield _gauge(
            "partitions_without_leader",
            "Partitions of logs that nothing can be written to or read from.",
            self.replication.leaderless,
        )
        yield _gauge(
            "partitions_below_min_in_sync",
            "Partitions of logs with fewer replicas in sync than min.insync.replicas.",
            self.replication.short,
        )
        yield _gauge(
            "partitions_under_replicated",
            "Partitions of logs with a replica that is not in sync.",
            self.replication.behind,
        )
        yield _gauge(
            "partitions_held_back",
            "Partitions that cannot be read on, because a transaction has not ended for a minute.",
            self.held_back,
        )
        yield Figure(
            "kafka_events_lost",
            "Offsets of accepted events that Kafka lost, for example by an unclean leader election.",
            {(): self.lost_events},
            counter=True,
        )
        yield Figure(
            "kafka_errors",
            "Errors of connections to Kafka and of events that Kafka did not take, by kind.",
            {(kind,): count for kind, count in sorted(self._errors.copy().items())},
            ("kind",),
            counter=True,
        )
        yield from _of_brokers(self._brokers)


def _of_brokers(brokers: Mapping[str, _BrokerFigures]) -> Iterator[Figure]:
    def column(
        name: str, meaning: str, values: Iterable[tuple[str, float]], *, counter: bool = False
    ) -> Figure:
        samples: dict[tuple[str, ...], float] = {(broker,): value for broker, value in values}
        return Figure(f"kafka_broker_{name}", meaning, samples, ("broker",), counter=counter)

    found = sorted(brokers.items())
    yield column("up", "1 while the producer is connected.", ((name, float(each.up)) for name, each in found))
    yield column(
        "round_trip_seconds",
        "Mean time of a request of the producer.",
        ((name, each.round_trip) for name, each in found),
    )
    yield column(
        "throttle_seconds",
        "Mean time by which the broker delays the producer, because of a quota of Kafka.",
        ((name, each.throttle) for name, each in found),
    )
    yield column(
        "request_timeouts",
        "Requests of the producer without an answer in time.",
        ((name, each.timeouts) for name, each in found),
        counter=True,
    )


def _broker(report: Mapping[str, Any]) -> _BrokerFigures:
    return _BrokerFigures(
        up=report.get("state") == _UP,
        round_trip=_mean(report, "rtt") / 1e6,
        throttle=_mean(report, "throttle") / 1e3,
        timeouts=int(report.get("req_timeouts", 0)),
    )


def _mean(report: Mapping[str, Any], name: str) -> float:
    return float(report.get(name, {}).get("avg", 0))


def _gauge(name: str, meaning: str, value: float) -> Figure:
    return Figure(f"kafka_{name}", meaning, {(): value})
