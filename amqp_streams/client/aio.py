"""The asyncio face: `async with connect(url) as client`, then producers, consumers, information and management.

Every method that waits takes `timeout` in seconds (None: no limit) and raises `TimedOutError` when it runs out. All of it belongs to the
event loop it was made on.
"""

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from amqp_streams.client.events import Event, ReceivedEvent
from amqp_streams.client.info import LogInfo, LogSummary
from amqp_streams.client.options import ACCEPTED, LATEST, Outcome, RetryPolicy, Settle, Start, TlsOptions


@dataclass(frozen=True, slots=True)
class Receipt:
    """An event is durable in its log. `attempts` is how often it was sent (more than 1: it may be stored more than once)."""

    attempts: int


class Producer:
    """Sends events to one log (or to one partition of it). Made by `Client.producer`; use it with `async with`, which flushes."""

    async def send(
        self, event: Event | ReceivedEvent | bytes, partition: str | int | None = None, *, timeout: float | None = 30.0
    ) -> Receipt:
        """Send one event and wait until it is accepted: durable.

        Raises: RejectedError, ReleasedError, ConnectionLostError, LinkError, TimedOutError, ClosedError.
        """
        raise NotImplementedError

    async def post(
        self, event: Event | ReceivedEvent | bytes, partition: str | int | None = None, *, timeout: float | None = 30.0
    ) -> Awaitable[Receipt]:
        """Send one event and wait only for room in the window; await what it returns for the outcome, or call `flush`."""
        raise NotImplementedError

    async def post_batch(
        self, events: Sequence[Event | ReceivedEvent | bytes], partition: str | int | None = None, *, timeout: float | None = 30.0
    ) -> None:
        """Post many: the fast path. Waits for room in the window, not for outcomes; `flush` gives those."""
        raise NotImplementedError

    async def flush(self, *, timeout: float | None = 30.0) -> None:
        """Wait for the outcome of everything posted.

        Raises: SendError naming what was refused since the last flush.
        """
        raise NotImplementedError

    async def close(self, *, timeout: float | None = 30.0) -> None:
        """Flush, then detach."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raise NotImplementedError


class Consumer:
    """Receives the events of one log (or of one partition of it). Made by `Client.consumer`; use it with `async with`."""

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        raise NotImplementedError

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next events, at most `max_events`: waits for the first; an empty list when `timeout` seconds passed without one."""
        raise NotImplementedError

    async def receive_raw(self, max_events: int = 500, timeout: float | None = None) -> list[bytes]:
        """The same as bare bytes of AMQP messages with their delivery annotations: the fastest way. Not with settle="manual"."""
        raise NotImplementedError

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Say what became of events. Those received on a connection since lost are passed over. Never waits."""
        raise NotImplementedError

    async def close(self, *, timeout: float | None = 30.0) -> None:
        """Detach. Unsettled events stay in the log anyway."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raise NotImplementedError


class Management:
    """Makes, lists, describes, changes and deletes logs. Each call raises ManagementError (status 404, 409, …) when refused."""

    async def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        segment_bytes: int | None = None,
        segment_ms: int | None = None,
        timeout: float | None = 30.0,
    ) -> LogInfo:
        """Make a log; durable when this returns. None: the server's default."""
        raise NotImplementedError

    async def list_logs(self, *, timeout: float | None = 30.0) -> list[LogSummary]:
        """All logs, by name."""
        raise NotImplementedError

    async def describe_log(self, name: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Settings and figures of one log."""
        raise NotImplementedError

    async def update_log(self, name: str, settings: Mapping[str, int | None], *, timeout: float | None = 30.0) -> LogInfo:
        """Change settings: keys `retention-ms`, `retention-bytes`, …; None takes a bound away."""
        raise NotImplementedError

    async def delete_log(self, name: str, *, timeout: float | None = 30.0) -> None:
        """Delete a log and its events."""
        raise NotImplementedError


class Client:
    """One connection to an event log node, made again when it is lost. Made by `connect`."""

    @property
    def management(self) -> Management:
        """The node's `$management`."""
        raise NotImplementedError

    def producer(
        self, log: str, *, partition: str | int | None = None, window: int = 1000, properties: Mapping[str, object] | None = None
    ) -> Producer:
        """A producer for `log`; attached when entered with `async with`. `window` bounds events whose outcome is not known yet."""
        raise NotImplementedError

    def consumer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        start: Start = LATEST,
        credit: int = 1000,
        settle: Settle = "auto",
        properties: Mapping[str, object] | None = None,
        filters: Mapping[str, object] | None = None,
    ) -> Consumer:
        """A consumer of `log`; attached when entered with `async with`.

        `credit` bounds the events on their way or unread here. `properties` are link properties (`event-streams-consumer-group`,
        `event-streams-epoch`), `filters` further filters: name -> Described(descriptor, value).
        """
        raise NotImplementedError

    async def info(self, log: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Partitions, offsets and figures of a log, from its `$info` node. Raises LinkRefusedError if there is no such log."""
        raise NotImplementedError

    async def close(self, *, timeout: float | None = 30.0) -> None:
        """Close the connection; producers and consumers end with ClosedError."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raise NotImplementedError


def connect(
    url: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    tls: TlsOptions | None = None,
    retry: RetryPolicy | None = None,
    container_id: str | None = None,
    idle_timeout_ms: int = 30_000,
    timeout: float | None = 10.0,
) -> Client:
    """A client for the node at `url`: amqp:// amqps:// ws:// wss://, user and password in the URL or given; several URLs: tried in turn.

    Use it with `async with`, which connects. Raises there: ConnectError, AuthenticationError, TimedOutError.
    """
    raise NotImplementedError
