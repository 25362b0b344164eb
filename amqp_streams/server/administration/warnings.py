"""What an operator should look at before it stops the node, each with its remedy. Decides; does no I/O."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from amqp_streams import names
from amqp_streams.storage.ports import PartitionFacts, Use
from service_parts.health.warned import (
    NEARLY,
    Warned,
    counted,
    is_nearly_full,
    of_certificate,
    of_descriptors,
    space,
)

NAMED_MAX: Final = 5
"""How many logs, partitions or users one warning names. The others are counted."""
SKEW: Final = 4.0
"""A log is skewed if one partition has this many times the mean."""
SKEW_EVENTS_MIN: Final = 10_000

T = TypeVar("T")


class Few(Generic[T]):
    """The first NAMED_MAX of any number of things, the heaviest first, and how many there are."""

    __slots__ = ("_weighed", "count")

    def __init__(self, things: Iterable[T] = ()) -> None:
        self.count = 0
        self._weighed: Final[list[tuple[float, T]]] = []
        for each in things:
            self.add(each)

    def add(self, thing: T, *, weight: float = 0) -> None:
        """Count one. Of the same weight, the earlier one comes first."""
        self.count += 1
        insort(self._weighed, (-weight, thing), key=lambda each: each[0])
        del self._weighed[NAMED_MAX:]

    def __iter__(self) -> Iterator[T]:
        return (thing for _, thing in self._weighed)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the node knows. Times are in milliseconds, since 1970 where not said otherwise."""

    now_ms: int
    not_ready: str | None = None
    disk_free: int | None = None
    disk_size: int | None = None
    disk_reserve: int = 0
    descriptors: int | None = None
    descriptors_max: int | None = None
    connections_wanted: int = 0
    uses: Mapping[str, Use] = field(default_factory=dict)
    stopped: Few[tuple[str, int, str]] = field(default_factory=Few)
    """Partitions that stopped: log, number, reason."""
    skewed: Few[tuple[str, float]] = field(default_factory=Few)
    ahead_ms: Mapping[str, int] = field(default_factory=dict)
    clock_ahead_ms: int = 0
    throttled: Few[tuple[str, str]] = field(default_factory=Few)
    """Quotas for which links wait: user, quota."""
    throttled_links: int = 0
    homes: Sequence[str] = ()
    """What keeps links in groups and durable links waiting."""
    producers: Sequence[str] = ()
    """What keeps idempotent producers from sending."""
    certificate_expires_ms: int | None = None
    node_certificate_expires_ms: int | None = None
    """Of the certificate for other nodes."""
    reload_failed: Sequence[str] = ()
    restart_needed: Sequence[str] = ()
    is_open: bool = False


def warnings(facts: Facts) -> list[Warned]:
    """All warnings, errors first."""
    found = (*_service(facts), *_space(facts), *_limits(facts), *_data(facts), *_settings(facts))
    return sorted(found, key=lambda each: not each.is_error)


def skew_of(partitions: Sequence[PartitionFacts]) -> float | None:
    """How many times the mean the largest partition has; None: the log is even or small."""
    events = [each.end - each.start for each in partitions]
    total = sum(events)
    if len(events) < 2 or total < SKEW_EVENTS_MIN:
        return None
    found = max(events) * len(events) / total
    # With few partitions, even all events in one of them are not that many times the mean.
    return found if found >= min(SKEW, len(events) * 0.9) else None


def _service(facts: Facts) -> Iterator[Warned]:
    if facts.not_ready is not None:
        remedy = "see the log of the node: docs/operations.md says what to do for each line"
        yield Warned(
            names.NODE_NOT_READY, f"The node is not ready: {facts.not_ready}.", remedy, is_error=True
        )
    if facts.homes:
        named = _some(facts.homes, len(facts.homes), str)
        yield Warned(
            "homes",
            f"Consumer groups and durable subscriptions may wait: {named}.",
            "see 'Connections between nodes' in docs/kafka.md, and the log of the node",
        )
    if facts.producers:
        named = _some(facts.producers, len(facts.producers), str)
        yield Warned(
            "producers",
            f"Idempotent producers may be refused: {named}.",
            "see 'Idempotent producers' in docs/kafka.md, and the log of the node",
        )
    if facts.throttled.count:
        links = facts.throttled_links
        users = _some(facts.throttled, facts.throttled.count, lambda each: f"{each[0]} ({each[1]})")
        yield Warned(
            "quota",
            f"{counted(links, 'link waits', 'links wait')} for a quota of the user: {users}.",
            "nothing if the quotas are as intended; else raise quotas.NAME.bytes_in or bytes_out, and reload",
        )


def _space(facts: Facts) -> Iterator[Warned]:
    free, size = facts.disk_free, facts.disk_size
    if free is not None and size is not None and is_nearly_full(free, size):
        yield Warned(
            "disk",
            f"The disk has {space(free)} free of {space(size)}. With less than"
            f" {space(facts.disk_reserve)} the node accepts no events.",
            "free space, shorten the retention of logs, or delete a log",
            is_error=free < facts.disk_reserve,
        )
    yield from of_descriptors(facts.descriptors, facts.descriptors_max)


def _limits(facts: Facts) -> Iterator[Warned]:
    for name, use in facts.uses.items():
        # A cache is full whenever it is of use.
        if name in _LIMITS and use.limit and use.used >= NEARLY * use.limit:
            yield Warned(
                f"limit-{name}",
                f"{name}: {use.used:,} of {use.limit:,} are in use.",
                _REMEDIES.get(name, _RAISE.format(name=name)),
                is_error=use.used >= use.limit,
            )
    connections = facts.uses.get("connections")
    if connections is not None and connections.limit < facts.connections_wanted:
        yield Warned(
            "connections-bounded",
            f"The node accepts {connections.limit:,} connections instead of {facts.connections_wanted:,}:"
            " its file descriptors do not suffice for more.",
            "raise the limit of open files of the process (LimitNOFILE of systemd, ulimit -n), and restart",
        )


def _data(facts: Facts) -> Iterator[Warned]:
    stopped, skewed = facts.stopped, facts.skewed
    if stopped.count:
        named = _some(stopped, stopped.count, lambda each: f"{each[0]}/{each[1]} ({each[2]})")
        yield Warned(
            "partition-stopped",
            f"{counted(stopped.count, 'partition accepts', 'partitions accept')} no events: {named}.",
            "correct the fault of the disk, then restart the node; the stored events stay readable",
            is_error=True,
        )
    if skewed.count:
        named = _some(skewed, skewed.count, lambda each: f"{each[0]} ({each[1]:.1f} times the mean)")
        yield Warned(
            "skew",
            f"One partition has most of the events of {named}.",
            "use keys with more different values, or no key: events with the same key go to one partition",
        )
    if facts.ahead_ms:
        ahead = facts.ahead_ms
        named = _some(ahead.items(), len(ahead), lambda each: f"{each[0]} ({_seconds(each[1])})")
        yield Warned(
            "timestamps-ahead",
            f"The last events of some logs have later times than the clock: {named}.",
            "set the clock of the machine; new events keep the time of the last one until the clock is there",
        )
    if facts.clock_ahead_ms:
        yield Warned(
            "clock-jumped",
            f"The clock of the machine jumped ahead by {_seconds(facts.clock_ahead_ms)}: retention waits.",
            "correct the clock; retention trusts the new time after a while",
        )


def _settings(facts: Facts) -> Iterator[Warned]:
    yield from of_certificate(
        facts.certificate_expires_ms,
        facts.now_ms,
        remedy="replace the files of tls.certificate and tls.key, then reload the node (SIGHUP)",
    )
    yield from of_certificate(
        facts.node_certificate_expires_ms,
        facts.now_ms,
        remedy="replace the files of node.certificate and node.key, then reload the node (SIGHUP)",
        code="node-certificate",
        of="for other nodes",
    )
    if facts.reload_failed:
        yield Warned(
            "reload",
            f"The last reload failed in part: {', '.join(facts.reload_failed)}. The old values are in force.",
            "correct what the log of the node names, then reload again (SIGHUP)",
        )
    needed = facts.restart_needed
    if needed:
        yield Warned(
            "restart",
            f"Changed settings are not in force yet: {_some(needed, len(needed), str)}.",
            "restart the node",
        )
    if facts.is_open:
        yield Warned(
            "no-access-rules",
            "Other machines can connect, and every user may do everything.",
            "write [[access]] rules, and reload the node (SIGHUP)",
        )


_LIMITS: Final = frozenset({
    "connections", "cursor_positions", "cursors", "kafka_numbered", "link_partitions", "partitions",
    "pending_bytes", "request_bytes", "states",
})  # fmt: skip
"""The bounds whose end stops clients. The others are caches, and work in flight."""
_RAISE: Final = "raise limits.{name} and restart the node, or use less"
_REMEDIES: Final = {
    "pending_bytes": "nothing if it is short: the disk is slower than the producers. Else use a faster disk",
    "connections": (
        "close connections ('amqp-streams connection list'), or raise limits.connections and restart"
    ),
    "partitions": "delete logs, or raise limits.partitions and restart",
    "cursors": "remove cursors ('amqp-streams cursor list'), or raise limits.cursors and restart",
    "kafka_numbered": "let producers connect to other nodes, or raise kafka.numbered and restart",
    "states": "remove cursors and consumer groups that are not used: this bound is fixed",
    "request_bytes": "nothing if it is short: clients send requests faster than the node answers them",
}


def _some(items: Iterable[T], count: int, words: Callable[[T], str]) -> str:
    """The first of `count` items. The others are neither read nor written."""
    more = f" and {count - NAMED_MAX:,} more" if count > NAMED_MAX else ""
    return ", ".join(map(words, islice(items, NAMED_MAX))) + more


def _seconds(ms: int) -> str:
    return f"{ms // 1000:,} s"
