"""The server's figures for Prometheus, in their own registry.

Law: counting costs the hot path nothing. Except the histograms of commits, all figures are read from
`StatusSource` during a scrape. The number of series depends on logs and partitions, which are limited, and on
the first consumer links (CONSUMERS_MAX) and groups (GROUPS_MAX, GROUP_LAGS_MAX), never on what
unauthenticated clients do.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from amqp_streams import __version__
from amqp_streams.errors import LogDeletedError
from amqp_streams.server.observing.partition_metrics import PREFIX, SAMPLES_A_PART, partition_metrics
from amqp_streams.server.observing.status import (
    ConsumerStatus,
    GroupStatus,
    LogStatus,
    NodeStatus,
    QuotaStatus,
    StatusSource,
)
from amqp_streams.storage.ports import CommitDone
from amqp_streams.storage.questions import Figure

SHARED_S: Final = 1.0
"""How long one exposition is reused for further scrapes, in seconds."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# A sync takes 0.2 ms on a good disk, and seconds on a failing one. Kafka may take a minute.
_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_EVENTS: Final = (1, 10, 100, 1000, 10_000, 100_000)
_BYTES: Final = tuple(1 << power for power in range(10, 27, 2))

# Names that clients choose are cut at this many characters.
_LABEL_MAX: Final = 128

_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)


class CommitMetrics:
    """Duration and size of commits. `observe` is called once per commit, not per event."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds: Final = Histogram(
            f"{PREFIX}commit_seconds",
            "Time to write and sync one commit.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._events: Final = Histogram(
            f"{PREFIX}commit_events", "Events in one commit.", buckets=_EVENTS, registry=registry
        )
        self._bytes: Final = Histogram(
            f"{PREFIX}commit_bytes", "Bytes in one commit.", buckets=_BYTES, registry=registry
        )
        self._failures = 0
        registry.register(_Made(self._failed))

    def observe(self, done: CommitDone) -> None:
        """Count one commit that has ended, successful or not."""
        self._seconds.observe(done.seconds)
        self._events.observe(done.events)
        self._bytes.observe(done.bytes)
        self._failures += sum(not isinstance(each, LogDeletedError) for each in done.failures.values())

    def _failed(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            f"{PREFIX}commit_failures",
            "Partitions whose part of a commit could not be made durable.",
            value=self._failures,
        )


class Metrics:
    """Everything that `/metrics` shows.

    `refused`: returns how many connections were refused at the limit. `data_dir`: the directory whose file
    system is measured. `expires_at`: returns when the certificate expires; None: it is not known.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        refused: Callable[[], int] | None = None,
        expires_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.registry: Final = CollectorRegistry()
        self.commits: Final = CommitMetrics(self.registry)
        self.source: StatusSource | None = None
        self.logins: Mapping[tuple[str, str], int] = {}
        """How many logins there were, by mechanism and result. The guard counts them."""
        self._data_dir: Final = data_dir
        self._refused: Final = refused
        self._expires_at: Final = expires_at
        self._shared: asyncio.Future[bytes] | None = None
        self._shared_at = 0.0
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(_Made(self._collect))

    async def shared_text(self) -> bytes:
        """Return the exposition, which is built at most once in SHARED_S however many requests arrive."""
        if self._shared is None or (self._shared.done() and time.monotonic() - self._shared_at > SHARED_S):
            self._shared, self._shared_at = asyncio.ensure_future(self.text()), time.monotonic()
            self._shared.add_done_callback(self._forget_failed)
        # Shielded: a client that goes away must not cancel what other requests wait for.
        return await asyncio.shield(self._shared)

    def _forget_failed(self, shared: "asyncio.Future[bytes]") -> None:
        if shared.cancelled() or shared.exception() is not None:
            self._shared = None

    async def text(self) -> bytes:
        """Build the exposition in Prometheus's text format 0.0.4.

        The event loop runs between parts of it: with a thousand partitions and links, building all of it
        takes about 90 ms.
        """
        texts: list[bytes] = []
        name = ""
        for part in chain.from_iterable(map(_parts, await self._families())):
            text = generate_latest(_Made(partial(iter, (part,))))
            # The lines HELP and TYPE stand before the first part of a family only.
            texts.append(text.split(b"\n", 2)[2] if part.name == name else text)
            name = part.name
            await asyncio.sleep(0)
        return b"".join(texts)

    async def _families(self) -> Iterator[Metric]:
        """All families, the large ones in several parts that follow each other."""
        if self.source is None:
            return iter(self.registry.collect())
        steps = self.source.status()
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                return chain(self.registry.collect(), node_metrics(ended.value))
            await asyncio.sleep(0)

    def _collect(self) -> Iterator[Metric]:
        if self._refused is not None:
            yield CounterMetricFamily(
                f"{PREFIX}connections_refused",
                "Connections closed before login because of limits.connections.",
                value=self._refused(),
            )
        logins = _family(
            CounterMetricFamily,
            "logins",
            "Logins by mechanism. 'limited': not checked, because too many had failed.",
            "mechanism",
            "result",
        )
        for labels, count in sorted(self.logins.items()):
            logins.add_metric(labels, count)
        yield logins
        if (expires_at := self._expires_at()) is not None:
            yield _gauge(
                "certificate_expiry_timestamp_seconds",
                "When the TLS certificate expires, in seconds since 1970.",
                expires_at,
            )
        if self._data_dir is not None:
            yield from disk_metrics(self._data_dir)


def node_metrics(status: NodeStatus) -> Iterator[Metric]:
    """Return the node's figures as metric families."""
    build = _family(GaugeMetricFamily, "build_info", "1; its label has the version.", "version")
    build.add_metric([__version__], 1)
    yield build
    yield _gauge("ready", "1 while the node serves clients.", float(status.ready))
    yield _gauge("connections", "Open AMQP connections.", status.connections)
    links = _family(GaugeMetricFamily, "links", "Attached links by the role of the client.", "role")
    links.add_metric(["producer"], status.producer_links)
    links.add_metric(["consumer"], status.consumer_links)
    yield links
    yield _gauge("pending_bytes", "Received bytes that are not yet durable.", status.pending_bytes)
    yield from _log_metrics(status.logs)
    yield from partition_metrics(status.logs)
    yield from _consumer_metrics(status.consumers, status.consumers_more)
    yield from _quota_metrics(status.quotas)
    yield CounterMetricFamily(
        f"{PREFIX}access_refused",
        "Attaches, messages and requests refused because a right is missing.",
        value=status.access_refused,
    )
    refused = _family(
        CounterMetricFamily,
        "deliveries_refused",
        "Deliveries of producers that were refused, by condition.",
        "condition",
    )
    for condition, count in sorted(status.deliveries_refused.items()):
        refused.add_metric([condition], count)
    yield refused
    yield from _group_metrics(status.groups, status.groups_more)
    yield from _health_metrics(status)
    yield from map(_store_metric, status.figures)


def _store_metric(figure: Figure) -> Metric:
    family: CounterMetricFamily | GaugeMetricFamily = (
        _family(CounterMetricFamily, figure.name, figure.meaning, *figure.labels)
        if figure.counter
        else _family(GaugeMetricFamily, figure.name, figure.meaning, *figure.labels)
    )
    for labels, value in figure.samples.items():
        family.add_metric(labels, value)
    return family


def disk_metrics(data_dir: Path) -> Iterator[Metric]:
    """Return the space on the file system of the data directory; nothing if the system cannot report it."""
    try:
        figures = os.statvfs(data_dir)
    except OSError:
        # A figure that is missing is better than a page of metrics that fails.
        return
    yield _gauge(
        "disk_free_bytes",
        "Free bytes on the file system of the data directory.",
        figures.f_bavail * figures.f_frsize,
    )
    yield _gauge(
        "disk_used_bytes",
        "Used bytes on that file system, including other files.",
        (figures.f_blocks - figures.f_bfree) * figures.f_frsize,
    )
    yield _gauge("disk_size_bytes", "Size of that file system.", figures.f_blocks * figures.f_frsize)


def _log_metrics(logs: Sequence[LogStatus]) -> Iterator[Metric]:
    events = _family(
        CounterMetricFamily, "events", "Events accepted (in) and sent to consumers (out).", "log", "direction"
    )
    volume = _family(CounterMetricFamily, "bytes", "Bytes of these events.", "log", "direction")
    repeated = _family(
        CounterMetricFamily,
        "repeated_events",
        "Events of idempotent producers that were already stored.",
        "log",
    )
    for log in logs:
        repeated.add_metric([log.name], log.repeated)
        events.add_metric([log.name, "in"], log.events_in)
        events.add_metric([log.name, "out"], log.events_out)
        volume.add_metric([log.name, "in"], log.bytes_in)
        volume.add_metric([log.name, "out"], log.bytes_out)
    yield events
    yield volume
    yield repeated


def _health_metrics(status: NodeStatus) -> Iterator[Metric]:
    hindered = float(status.hindered is not None)
    yield _gauge(
        "hindered", "1 if the node accepts no events or its regular work fails; /readyz says why.", hindered
    )
    used = _family(GaugeMetricFamily, "bound_used", "How much of a limit of the node is used.", "bound")
    limit = _family(GaugeMetricFamily, "bound_limit", "That limit.", "bound")
    for name, use in status.uses.items():
        used.add_metric([name], use.used)
        limit.add_metric([name], use.limit)
    yield CounterMetricFamily(
        f"{PREFIX}request_seconds",
        "Time of the event loop for answers to $info and $management.",
        value=status.request_seconds,
    )
    faults = _family(CounterMetricFamily, "faults", "Steps of the regular work that failed.", "step")
    for step, count in status.faults.items():
        faults.add_metric([step], count)
    yield from (used, limit, faults)


def _consumer_metrics(consumers: Sequence[ConsumerStatus], more: int) -> Iterator[Metric]:
    labels = ("log", "partition", "container", "link")
    position = _family(
        GaugeMetricFamily, "consumer_position", "Offset of the next event of the link.", *labels
    )
    lag = _family(GaugeMetricFamily, "consumer_lag_events", "Events that wait for the link.", *labels)
    # One container may attach links with the same name on two connections. Only the first gets a series:
    # Prometheus rejects a scrape with duplicate series.
    shown: dict[tuple[str, ...], ConsumerStatus] = {}
    for consumer in consumers:
        shown.setdefault(
            (consumer.log, str(consumer.partition), _label(consumer.container), _label(consumer.link)),
            consumer,
        )
    for names, consumer in shown.items():
        position.add_metric(names, consumer.position)
        lag.add_metric(names, consumer.lag)
    yield position
    yield lag
    yield _gauge(
        "consumers_not_shown",
        "Consumer links without series of their own.",
        len(consumers) + more - len(shown),
    )


def _group_metrics(groups: Sequence[GroupStatus], more: int) -> Iterator[Metric]:
    members = _family(
        GaugeMetricFamily, "group_members", "Containers with links in the group.", "log", "group"
    )
    waiting = _family(
        GaugeMetricFamily, "group_waiting", "Links that wait for a partition of the group.", "log", "group"
    )
    moves = _family(
        CounterMetricFamily,
        "group_moves",
        "Links that were asked to leave so that others get their share.",
        "log",
        "group",
    )
    lags = _family(
        GaugeMetricFamily,
        "group_lag_events",
        "Events behind the cursor of the group.",
        "log",
        "group",
        "partition",
    )
    shown: set[tuple[str, str]] = set()
    for group in groups:
        labels = (group.log, _label(group.group))
        if labels in shown:
            continue
        shown.add(labels)
        members.add_metric(labels, group.members)
        waiting.add_metric(labels, group.waiting)
        moves.add_metric(labels, group.moves)
        for index, lag in group.lags.items():
            lags.add_metric((*labels, str(index)), lag)
    yield from (members, waiting, moves, lags)
    yield _gauge(
        "groups_not_shown", "Consumer groups without series of their own.", len(groups) + more - len(shown)
    )


def _quota_metrics(quotas: Sequence[QuotaStatus]) -> Iterator[Metric]:
    waits = _family(
        CounterMetricFamily,
        "quota_waits",
        "How often a link waited for bytes of its user's quota.",
        "user",
        "direction",
    )
    seconds = _family(
        CounterMetricFamily, "quota_wait_seconds", "How long links of the user waited.", "user", "direction"
    )
    refused = _family(
        CounterMetricFamily,
        "quota_refused",
        "Connections and links refused because of the user's quota.",
        "user",
        "quota",
    )
    shown: dict[str, QuotaStatus] = {}
    # Users whose names are equal after the cut share one series: Prometheus rejects duplicates.
    for quota in quotas:
        user = _label(quota.user)
        shown[user] = shown[user] + quota if user in shown else quota
    for user, quota in shown.items():
        waits.add_metric([user, "in"], quota.waits_in)
        waits.add_metric([user, "out"], quota.waits_out)
        seconds.add_metric([user, "in"], quota.waited_in_ms / 1000)
        seconds.add_metric([user, "out"], quota.waited_out_ms / 1000)
        refused.add_metric([user, "connections"], quota.connections_refused)
        refused.add_metric([user, "links"], quota.links_refused)
    yield from (waits, seconds, refused)


def _parts(family: Metric) -> Iterator[Metric]:
    """A family in parts of at most `SAMPLES_A_PART` samples."""
    if len(family.samples) <= SAMPLES_A_PART:
        yield family
        return
    for first in range(0, len(family.samples), SAMPLES_A_PART):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = family.samples[first : first + SAMPLES_A_PART]
        yield part


class _Made(Collector):
    """A collector that calls a function."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families: Final = families

    def collect(self) -> Iterator[Metric]:
        """The families of this moment."""
        return self._families()

    def describe(self) -> Iterator[Metric]:
        """Return nothing: otherwise registering the collector would compute all figures."""
        return iter(())


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, documentation, value=value)


def _family(kind: type[_Family], name: str, documentation: str, *labels: str) -> _Family:
    return kind(PREFIX + name, documentation, labels=labels)


def _label(name: str) -> str:
    # A lone surrogate cannot be encoded and would fail the whole scrape.
    return name[:_LABEL_MAX].encode("utf-8", "replace").decode("utf-8")
