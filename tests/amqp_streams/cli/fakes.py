"""A node in memory with the interface of the client, so that commands are tested without sockets. It records
their requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pytest

from amqp_streams.cli.connection import Endpoint
from amqp_streams.client import (
    EARLIEST,
    CursorInfo,
    EndpointError,
    Event,
    GroupInfo,
    GroupList,
    LinkRefusedError,
    LogExtent,
    LogInfo,
    LogSummary,
    ManagementError,
    PartitionExtent,
    PartitionInfo,
    Receipt,
    ReceivedEvent,
    RejectedError,
    SendError,
    Start,
    TimedOutError,
)
from amqp_streams.log_settings import SettingValue
from amqp_streams.wire.codec import Described, Symbol, Timestamp, ULong, Value, encode
from tests.amqp_streams.decoded import binary

NOW_MS = 1_795_242_600_000


class _Entered:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


@dataclass
class FakeNode:
    """Logs with events. The partition of an event: the requested one, otherwise 0."""

    logs: dict[str, list[list[Event]]] = field(default_factory=dict)
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    uses: dict[str, tuple[int | None, int | None, int | None]] = field(default_factory=dict)
    """Events out, consumers and groups of logs of which the node sends them."""
    refuse: bytes | None = None
    opened: list[dict[str, object]] = field(default_factory=list)
    endpoints: list[Endpoint] = field(default_factory=list)
    containers: list[str | None] = field(default_factory=list)
    settled: list[bytes] = field(default_factory=list)
    passes: Callable[[bytes], bool] | None = None
    """Returns whether the filter passes an event, given its body."""
    cursors: list[CursorInfo] = field(default_factory=list)
    groups: list[GroupInfo] = field(default_factory=list)
    incomplete: tuple[str, ...] = ()
    asked: list[tuple[object, ...]] = field(default_factory=list)
    """The requests that changed cursors and groups, in order."""
    describe: Callable[[], GroupInfo] | None = None
    """The states of a group that successive requests find."""
    refusal: EndpointError | None = None
    """Why members of groups get no partition."""
    joining: bool = False
    """Whether other members have all partitions."""
    slow: int = 0
    """How many requests for the retained range time out."""

    def info(self, log: str) -> LogInfo:
        """The answer of `$info`."""
        if log not in self.logs:
            raise LinkRefusedError("amqp:not-found", f"no log named {log!r}")
        partitions = tuple(
            PartitionInfo(
                str(index),
                0 if events else None,
                len(events) - 1 if events else None,
                len(events),
                100 * len(events),
                NOW_MS if events else None,
                NOW_MS + len(events) - 1 if events else None,
                "running",
            )
            for index, events in enumerate(self.logs[log])
        )
        given = self.settings.get(log, {})
        settings = {key.replace("-", "_"): value for key, value in given.items() if isinstance(value, int)}
        return LogInfo(log, partitions, "i1", "always", {"segment_bytes": 1 << 27} | settings)

    def stored(self, log: str, partition: int, number: int) -> ReceivedEvent:
        """Return an event as it is received. Event number n was stored n ms after `NOW_MS`."""
        annotations: dict[Value, Value] = {
            Symbol("event-streams-source-partition"): Symbol(str(partition)),
            Symbol("event-streams-offset"): Symbol(f"{number:016d}"),
            Symbol("event-streams-timestamp"): Timestamp(NOW_MS + number),
        }
        return ReceivedEvent(
            encode(Described(ULong(0x71), annotations)) + self.logs[log][partition][number].encode()
        )


class FakeClient(_Entered):
    """A double of `Client`."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self.management = FakeManagement(node)

    async def info(self, log: str) -> LogInfo:
        """See `Client`."""
        return self._node.info(log)

    async def extents(self, logs: Sequence[str], **_: object) -> dict[str, LogExtent]:
        """See `Client`."""
        self._node.asked.append(("extents", *logs))
        return {
            log: LogExtent(
                log,
                "i1",
                tuple(
                    PartitionExtent(str(n), 0, len(one), 100 * len(one), None, None, "running")
                    for n, one in enumerate(self._node.logs[log])
                ),
                *self._node.uses.get(log, ()),
            )
            for log in logs
        }

    def producer(self, log: str, **options: object) -> "FakeProducer":
        """See `Client`."""
        self._node.opened.append({"log": log, **options})
        return FakeProducer(self._node, log, options.get("partition"))

    def group_consumer(self, log: str, group: str, **options: object) -> "FakeConsumer":
        """See `Client`: the only member, which has all partitions."""
        return self.consumer(log, group=group, **options)

    def consumer(self, log: str, **options: object) -> "FakeConsumer":
        """See `Client`."""
        self._node.opened.append({"log": log, **options})
        self._node.info(log)
        return FakeConsumer(self._node, log, options)


class FakeProducer(_Entered):
    """A `Producer` that refuses events whose body is `refuse`."""

    def __init__(self, node: FakeNode, log: str, partition: object) -> None:
        self._node, self._log, self._bound = node, log, partition
        self._failures: list[tuple[object, RejectedError]] = []

    @property
    def unsettled(self) -> int:
        """See `Producer`."""
        return 0

    async def post_batch(self, events: Sequence[Event], partition: str | None = None, **_: object) -> None:
        """See `Producer`."""
        chosen = int(
            str(self._bound if partition is None else partition)
            if (self._bound, partition) != (None, None)
            else 0
        )
        for event in events:
            if isinstance(event, Event) and event.body == self._node.refuse is not None:
                self._failures.append((event, RejectedError("amqp:not-allowed", "not this one")))
            else:
                self._node.logs[self._log][chosen].append(event)

    async def post(self, event: Event, partition: str | None = None, **_: object) -> Awaitable[Receipt]:
        """See `Producer`."""
        await self.post_batch([event], partition)

        async def outcome() -> Receipt:
            return Receipt(1)

        return outcome()

    async def flush(self, **_: object) -> None:
        """See `Producer`."""
        if self._failures:
            failures, self._failures = self._failures, []
            raise SendError(failures, len(failures))


class FakeConsumer(_Entered):
    """A `Consumer`: it reads the partitions round-robin, from the earliest event.

    The node skips events before a start; this class does not simulate that.
    """

    def __init__(self, node: FakeNode, log: str, options: Mapping[str, Any]) -> None:
        partition = options.get("partition")
        wanted = range(len(node.logs[log])) if partition is None else [int(partition)]
        from_earliest = options.get("start") == EARLIEST
        self._node = node
        self._coming = [
            node.stored(log, one, number)
            for one in wanted
            for number in range(len(node.logs[log][one]))
            if from_earliest
        ]
        self._assigned = options.get("on_assigned")
        self.refusal = node.refusal
        self.partitions = () if node.refusal or node.joining else ("0",)
        if not self.partitions:
            self._coming = []
        if options.get("filters"):
            assert node.passes is not None
            self._coming = [event for event in self._coming if node.passes(binary(event.body))]

    # The client's signature.
    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:  # noqa: ASYNC109
        """See `Consumer`, and `GroupConsumer`."""
        await asyncio.sleep(0)
        if self._assigned and self.partitions:
            self._assigned("0")
            self._assigned = None
        taken, self._coming = self._coming[:max_events], self._coming[max_events:]
        return taken

    async def receive_retained(
        self,
        max_events: int = 500,
        timeout: float | None = None,  # noqa: ASYNC109 noqa: ASYNC109  # the client's signature
    ) -> list[ReceivedEvent]:
        """See `Consumer`."""
        if self._node.slow:
            self._node.slow -= 1
            message = "took longer"
            raise TimedOutError(message)
        return await self.receive(max_events)

    def settle(self, events: Iterable[ReceivedEvent]) -> None:
        """See `Consumer`."""
        self._node.settled += [binary(event.body) for event in events]

    # The client's signature.
    async def receive_raw(self, max_events: int = 500, timeout: float | None = None) -> list[bytes]:  # noqa: ASYNC109
        """See `Consumer`."""
        return [event.message for event in await self.receive(max_events)]


class FakeManagement:
    """A double of `Management`."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def create_log(self, name: str, *, partitions: int = 1, **settings: object) -> LogInfo:
        """See `Management`."""
        if name in self._node.logs:
            raise ManagementError(409, f"log {name!r} already exists")
        self._node.logs[name] = [[] for _ in range(partitions)]
        self._node.settings[name] = {
            key.replace("_", "-"): value for key, value in settings.items() if value is not None
        }
        return self._node.info(name)

    async def list_logs(self) -> list[LogSummary]:
        """See `Management`."""
        return [
            LogSummary(name, len(partitions), self._node.settings.get(name, {}))
            for name, partitions in sorted(self._node.logs.items())
        ]

    async def describe_log(self, name: str) -> LogInfo:
        """See `Management`."""
        self._known(name)
        return self._node.info(name)

    async def update_log(self, name: str, settings: Mapping[str, SettingValue]) -> LogInfo:
        """See `Management`."""
        self._known(name)
        self._node.settings.setdefault(name, {}).update(settings)
        return self._node.info(name)

    async def delete_log(self, name: str) -> None:
        """See `Management`."""
        self._known(name)
        del self._node.logs[name]

    async def list_cursors(self, log: str | None = None) -> list[CursorInfo]:
        """See `Management`."""
        if log is not None:
            self._known(log)
        return [one for one in self._node.cursors if log in (None, one.log)]

    async def reset_cursor(
        self, log: str, cursor: str, to: Start, *, partition: str | None = None
    ) -> CursorInfo:
        """See `Management`."""
        self._node.asked.append(("reset", log, cursor, to, partition))
        return next(one for one in self._node.cursors if one.id == cursor)

    async def delete_cursor(self, log: str, cursor: str) -> None:
        """See `Management`."""
        self._node.asked.append(("delete", log, cursor))

    async def list_groups(self, log: str | None = None) -> list[GroupInfo]:
        """See `Management`."""
        if log is not None:
            self._known(log)
        return [one for one in self._node.groups if log in (None, one.log)]

    async def query_groups(self, log: str | None = None) -> GroupList:
        """See `Management`."""
        return GroupList(tuple(await self.list_groups(log)), self._node.incomplete)

    async def describe_group(self, log: str, group: str) -> GroupInfo:
        """See `Management`."""
        self._node.asked.append(("describe", log, group))
        if self._node.describe is not None:
            return self._node.describe()
        found = [one for one in self._node.groups if (one.log, one.name) == (log, group)]
        if not found:
            raise ManagementError(404, f"log {log!r} has no consumer group {group!r}")
        return found.pop()

    async def reset_group(
        self, log: str, group: str, to: Start, *, partition: str | None = None
    ) -> GroupInfo:
        """See `Management`."""
        self._node.asked.append(("reset", log, group, to, partition))
        return await self.describe_group(log, group)

    async def delete_group(self, log: str, group: str) -> None:
        """See `Management`."""
        await self.describe_group(log, group)
        self._node.asked.append(("delete", log, group))

    def _known(self, name: str) -> None:
        if name not in self._node.logs:
            raise ManagementError(404, f"no log named {name!r}")


def reachable(monkeypatch: pytest.MonkeyPatch, node: FakeNode) -> FakeNode:
    """Let commands find this node under any URL."""

    def client(endpoint: Endpoint, container_id: str | None = None) -> FakeClient:
        node.endpoints.append(endpoint)
        node.containers.append(container_id)
        return FakeClient(node)

    monkeypatch.setattr(Endpoint, "client", client)
    return node
