"""Chunks of rows on their way into a log. [io]

Laws: a chunk is sent when everything before it is accepted, so that order holds in each partition. A chunk that failed on its way for a
reason that passes is sent again, whole, under the same name. What this process holds is one chunk on its way and one that is being filled;
how fast they go is up to the node's credit.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from amqp_streams.client import (
    ManagementError,
    RejectedError,
    SendError,
)
from amqp_streams.client.blocking import Client, Producer
from amqp_streams.errors import AmqpStreamsError
from spark_connector.errors import ConnectorError, NodeError, RowError, StreamNotFoundError
from spark_connector.node.connections import client, pause, retried
from spark_connector.options.settings import ConnectionOptions, WriteOptions
from spark_connector.writing.chunks import Chunk, name_of
from spark_connector.writing.messages import BY_KEY

LINKS_MAX: Final = 32
"""Links at a time: each has a session, of which a node gives a connection 64."""
WINDOW: Final = 5_000
"""Events on their way without an outcome: with a node that syncs to disk fewer are slower."""

_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
_CONFLICT: Final = 409
_T = TypeVar("_T")


def partition_count(options: WriteOptions) -> int:
    """How many partitions the log has; made with `create_partitions` if there is none.

    Raises: StreamNotFoundError, NodeError.
    """
    where = f"stream {options.stream!r}"
    try:
        return retried(options.connection, "asking for the log", partial(_count, options), where=where)
    except StreamNotFoundError as error:
        if options.create_partitions is None:
            raise StreamNotFoundError(
                f"there is no log {options.stream!r}",
                error.where,
                'Make it (amqp-streams log create), or have it made: .option("createPartitions", 4)',
            ) from error
    return retried(options.connection, "making the log", partial(_create, options), where=where)


def _count(options: WriteOptions, node: Client) -> int:
    return len(node.info(options.stream, timeout=_timeout_s(options.connection)).partitions)


def _create(options: WriteOptions, node: Client) -> int:
    assert options.create_partitions is not None
    try:
        node.management.create_log(options.stream, partitions=options.create_partitions, timeout=_timeout_s(options.connection))
    except ManagementError as error:
        if error.status != _CONFLICT:  # another task was quicker
            raise NodeError(f"the log {options.stream!r} cannot be made: {error}", str(options.connection)) from error
    return _count(options, node)


class Sending:
    """Sends the chunks of one task. Use it with `with`: leaving waits until all is accepted; an exception drops what is on its way."""

    def __init__(self, options: WriteOptions, task: str) -> None:
        """`task` names the write and the task of it: chunks are known by it when they come again."""
        self._connection: Final = options.connection
        self._stream: Final = options.stream
        self._task: Final = task if options.deduplicate else None
        self._chunk: Chunk | None = None
        self._links: _Links | None = None

    def send(self, chunk: Chunk) -> None:
        """Hand a chunk over; returns when the last of it is on its way.

        Raises: RowError, StreamNotFoundError, NodeError.
        """
        self._land()
        self._chunk = chunk
        self._tried(self._post)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._land()
        else:
            self._drop()

    def _land(self) -> None:
        """Wait until the chunk on its way is accepted, and close its links: the next has its own."""
        if self._chunk is not None:
            self._tried(self._flush)
            self._chunk = self._links = None

    def _post(self, node: Client) -> None:
        assert self._chunk is not None
        if self._links is None:
            self._links = _Links(_timeout_s(self._connection))
            for place, messages in self._chunk.messages.items():
                name = None if self._task is None else name_of(self._task, self._chunk, place)
                partition = None if place is BY_KEY else place
                producer = self._links.open(node.producer(self._stream, partition=partition, window=WINDOW, producer_id=name))
                # A chunk's rows have the numbers 0, 1, … of its name: the log stores those that it has not got.
                producer.post_batch(messages, sequence=None if name is None else 0, timeout=_timeout_s(self._connection))

    def _flush(self, node: Client) -> None:
        self._post(node)
        assert self._links is not None
        self._links.flush()

    def _tried(self, work: Callable[[Client], None]) -> None:
        attempt = 0
        while True:
            try:
                return work(client(self._connection))
            except (AmqpStreamsError, OSError) as error:
                self._drop()
                failure = _first(error)
                if isinstance(failure, RejectedError):
                    raise self._rejection(failure) from error
                pause(self._connection, failure, "writing", attempt, where=f"stream {self._stream!r}")
                attempt += 1

    def _drop(self) -> None:
        links, self._links = self._links, None
        if links is not None:
            links.drop()

    def _rejection(self, error: RejectedError) -> ConnectorError:
        where = f"stream {self._stream!r}, node {self._connection}"
        if error.condition == _TOO_LARGE:
            return RowError(f"a row makes a message of {error.description}", where, "Make it smaller, or raise the node's message_bytes")
        return NodeError(f"a row was refused: {error}", where)


class _Links:
    """The links that a chunk goes out on, one for each place; of many places some after the others."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s: Final = timeout_s
        self._stack: Final = ExitStack()
        self._producers: Final[list[Producer]] = []

    def open(self, producer: Producer) -> Producer:
        if len(self._producers) == LINKS_MAX:
            self.flush()
        self._producers.append(self._stack.enter_context(producer))
        return producer

    def flush(self) -> None:
        """Wait until everything is accepted, and close the links."""
        for producer in self._producers:
            producer.flush(timeout=self._timeout_s)
        self._producers.clear()
        self._stack.close()

    def drop(self) -> None:
        """Give up what has no outcome yet."""
        given_up = RuntimeError("given up")
        self._stack.__exit__(RuntimeError, given_up, None)


def _first(error: Exception) -> Exception:
    """What happened, of events that were not accepted: what is wrong with one of them, if anything is."""
    if not isinstance(error, SendError):
        return error
    failures = [failure for _, failure in error.failures]
    return next((failure for failure in failures if isinstance(failure, RejectedError)), failures[0])


def _timeout_s(options: ConnectionOptions) -> float:
    return options.operation_timeout_ms / 1000
