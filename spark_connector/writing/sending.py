"""Sends chunks of rows to a log. [io]

A chunk is sent after everything before it was accepted, so each partition keeps the order of the rows. A
chunk that failed temporarily is sent again as a whole, under the same name. The process holds at most two
chunks: one in flight, and one that is being filled. The node's credit limits the rate.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa

from amqp_streams.client import (
    ManagementError,
    RejectedError,
    SendError,
    TimedOutError,
)
from amqp_streams.client.blocking import Client, Producer
from amqp_streams.errors import AmqpStreamsError
from spark_connector.errors import ConnectorError, NodeError, RowError, StreamNotFoundError
from spark_connector.node.connections import client, pause, retried
from spark_connector.options.settings import ConnectionOptions, WriteOptions
from spark_connector.writing.chunks import Chunk, name_of
from spark_connector.writing.messages import BY_KEY
from spark_connector.writing.packing import packed

LINKS_MAX: Final = 32
"""Links that are open at once. Each needs a session, and a node allows 64 sessions on a connection."""
WINDOW: Final = 5_000
"""Events in flight on a link. With fewer events, a node that syncs to disk is slower."""

_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
_CONFLICT: Final = 409
_T = TypeVar("_T")


def partition_count(options: WriteOptions) -> int:
    """Return the number of partitions of the log. With `create_partitions`, a missing log is created.

    Raises:
        StreamNotFoundError: the log does not exist.
        NodeError: all retries failed, or the node refused the request.
    """
    where = f"log {options.stream!r}"
    try:
        return retried(options.connection, "looking up the log", partial(_count, options), where=where)
    except StreamNotFoundError as error:
        if options.create_partitions is None:
            raise StreamNotFoundError(
                f"the log {options.stream!r} does not exist",
                error.where,
                'Create it with amqp-streams log create, or set .option("createPartitions", 4)',
            ) from error
    return retried(options.connection, "creating the log", partial(_create, options), where=where)


def _count(options: WriteOptions, node: Client) -> int:
    return len(node.info(options.stream, timeout=_timeout_s(options.connection)).partitions)


def _create(options: WriteOptions, node: Client) -> int:
    assert options.create_partitions is not None
    try:
        node.management.create_log(
            options.stream, partitions=options.create_partitions, timeout=_timeout_s(options.connection)
        )
    except ManagementError as error:
        if error.status != _CONFLICT:  # a conflict means that another task has created the log
            raise NodeError(
                f"the log {options.stream!r} cannot be created: {error}", str(options.connection)
            ) from error
    return _count(options, node)


class Sending:
    """Sends the chunks of one task. Leaving the context manager waits until everything is accepted.

    If an exception leaves it, it does not wait: the events in flight may then be stored or not.
    """

    def __init__(self, options: WriteOptions, task: str) -> None:
        """`task`: the name of the write and its task. The log recognizes repeated chunks by this name."""
        self._connection: Final = options.connection
        self._stream: Final = options.stream
        self._task: Final = task if options.deduplicate else None
        self._chunk: Chunk | None = None
        self._links: _Links | None = None

    def send(self, chunk: Chunk) -> None:
        """Send a chunk after the previous chunk was accepted.

        Returns when the last event of the chunk is in flight.

        Raises:
            RowError: the message of a row is too large.
            StreamNotFoundError: the log does not exist.
            NodeError: all retries failed, or the node refused a row.
        """
        self._finish_chunk()
        self._chunk = chunk
        self._retried(self._post)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish_chunk()
        else:
            self._drop()

    def _finish_chunk(self) -> None:
        """Wait until the chunk in flight is accepted, and close its links. The next chunk opens new links."""
        if self._chunk is not None:
            self._retried(self._flush)
            self._chunk = self._links = None

    def _post(self, node: Client) -> None:
        assert self._chunk is not None
        if self._links is None:
            self._links = _Links(_timeout_s(self._connection))
            for target, messages in self._chunk.messages.items():
                name = None if self._task is None else name_of(self._task, self._chunk, target)
                partition = None if target is BY_KEY else target
                producer = self._links.open(
                    node.producer(
                        self._stream,
                        partition=partition,
                        window=WINDOW,
                        producer_id=name,
                        compression=self._connection.compression,
                    )
                )
                self._put(producer, messages, numbered=name is not None)

    def _put(self, producer: Producer, messages: pa.BinaryArray, *, numbered: bool) -> None:
        """Send the messages of a chunk for one target.

        They have the sequence numbers 0, 1, … under the name of the chunk: the log skips those that it has.
        """
        timeout = _timeout_s(self._connection)
        if not producer.batch_events:
            producer.post_batch(messages.to_pylist(), sequence=0 if numbered else None, timeout=timeout)
            return
        batches: list[bytes] = []
        for each in packed(messages, numbered=numbered, events_max=producer.batch_events):
            if isinstance(each, bytes):
                batches.append(each)
                continue
            producer.post_encoded(batches)
            batches = []
            producer.post_batch([each.message], sequence=each.number if numbered else None, timeout=timeout)
        producer.post_encoded(batches)

    def _flush(self, node: Client) -> None:
        # After a failure the links are gone: send the chunk again first.
        self._post(node)
        assert self._links is not None
        self._links.flush()

    def _retried(self, work: Callable[[Client], None]) -> None:
        attempt = 0
        while True:
            try:
                return work(client(self._connection))
            except (AmqpStreamsError, OSError) as error:
                self._drop()
                failure = _first(error)
                if isinstance(failure, RejectedError):
                    raise self._rejection(failure) from error
                pause(self._connection, failure, "writing", attempt, where=f"log {self._stream!r}")
                attempt += 1

    def _drop(self) -> None:
        links, self._links = self._links, None
        if links is not None:
            links.drop()

    def _rejection(self, error: RejectedError) -> ConnectorError:
        where = f"log {self._stream!r}, node {self._connection}"
        if error.condition == _TOO_LARGE:
            return RowError(
                f"the message of a row is too large: {error.description}",
                where,
                "Make it smaller, or raise the node's message_bytes",
            )
        return NodeError(f"the node refused a row: {error}", where)


class _Links:
    """The links of a chunk, one for each target.

    If there are more than LINKS_MAX targets, links are opened in groups.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s: Final = timeout_s
        self._stack: Final = ExitStack()
        self._producers: Final[list[Producer]] = []

    def open(self, producer: Producer) -> Producer:
        # The links of the group end here: the next targets need the sessions.
        if len(self._producers) == LINKS_MAX:
            self.flush()
        self._producers.append(self._stack.enter_context(producer))
        return producer

    def flush(self) -> None:
        """Wait until everything is accepted, and close the links."""
        for producer in self._producers:
            self._flush(producer)
        self._producers.clear()
        self._stack.close()

    def _flush(self, producer: Producer) -> None:
        while True:
            left = producer.unsettled
            try:
                return producer.flush(timeout=self._timeout_s)
            except TimedOutError:
                # A slow node is not a failed one: the time limit is for one wait without an outcome.
                if producer.unsettled >= left:
                    raise

    def drop(self) -> None:
        """Abandon the events in flight, and close the links."""
        # An exception makes the producers detach without waiting for outcomes.
        given_up = RuntimeError("given up")
        self._stack.__exit__(RuntimeError, given_up, None)


def _first(error: Exception) -> Exception:
    """Return the error of a failed send.

    The rejection of an event, if one was rejected, else the first failure.
    """
    if not isinstance(error, SendError):
        return error
    failures = [failure for _, failure in error.failures]
    return next((failure for failure in failures if isinstance(failure, RejectedError)), failures[0])


def _timeout_s(options: ConnectionOptions) -> float:
    return options.operation_timeout_ms / 1000
