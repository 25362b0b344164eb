"""Chunks of rows on their way into a log. [io]

Laws: a chunk whose name counts is sent only when everything before it is accepted, so that order holds in each partition; what this process
holds is one chunk on its way and one that is filled; how fast it goes is up to the node's credit.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from amqp_streams.client import (
    LinkRefusedError,
    ManagementError,
    RejectedError,
    SendError,
)
from amqp_streams.client.blocking import Client, Producer, connect
from amqp_streams.errors import AmqpStreamsError
from spark_connector.chunks import Chunk, name_of
from spark_connector.errors import NodeError, RowError, StreamNotFoundError
from spark_connector.messages import BY_KEY, Place
from spark_connector.settings import ConnectionOptions

WINDOW: Final = 5_000
"""Events on their way without an outcome: with a node that syncs to disk fewer are slower."""

_NOT_FOUND: Final = "amqp:not-found"
_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class Target:
    """A log, by an open connection. `timeout_s` is for each wait; `create_partitions`: make it with so many if there is none."""

    client: Client
    stream: str
    timeout_s: float
    create_partitions: int | None = None

    def partition_count(self) -> int:
        """How many partitions the log has.

        Raises: StreamNotFoundError, NodeError.
        """
        with translated(self.stream):
            try:
                return len(self.client.info(self.stream, timeout=self.timeout_s).partitions)
            except LinkRefusedError as error:
                if error.condition != _NOT_FOUND or self.create_partitions is None:
                    raise
            try:
                self.client.management.create_log(self.stream, partitions=self.create_partitions, timeout=self.timeout_s)
            except ManagementError as error:
                if error.status != _CONFLICT:  # another task was quicker
                    raise
            return len(self.client.info(self.stream, timeout=self.timeout_s).partitions)


@contextmanager
def connected(options: ConnectionOptions) -> Iterator[Client]:
    """A connection to the node, closed on leaving. Raises NodeError."""
    with translated(str(options)):
        client = connect(options.endpoints, user=options.user, password=options.password, timeout=options.connect_timeout_ms / 1000)
        client.connect()
    try:
        yield client
    finally:
        client.close()


class Sending:
    """Sends the chunks of one task. Use it with `with`: leaving waits until all is accepted; by an exception drops what is on its way."""

    def __init__(self, target: Target, task: str | None) -> None:
        """`task` names the write and the task of it; None: nobody will know what was sent before."""
        self._target: Final = target
        self._task: Final = task
        self._links: Final = ExitStack()
        self._producers: dict[Place, Producer] = {}

    def send(self, chunk: Chunk) -> None:
        """Hand a chunk over; returns when the last of it is on its way.

        Raises: RowError, StreamNotFoundError, NodeError.
        """
        with translated(self._target.stream):
            if self._task is not None:
                self._finish()
            for place, messages in chunk.messages.items():
                self._producer(place, chunk).post_batch(messages, timeout=self._target.timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._links.__exit__(kind, error, trace)
            return
        with translated(self._target.stream):
            self._finish()

    def _producer(self, place: Place, chunk: Chunk) -> Producer:
        producer = self._producers.get(place)
        if producer is None:
            name = None if self._task is None else name_of(self._task, chunk, place)
            producer = self._producers[place] = self._links.enter_context(_producer(self._target, place, name))
        return producer

    def _finish(self) -> None:
        """Wait until everything is accepted, and close the links: the next chunk has its own."""
        for producer in self._producers.values():
            producer.flush(timeout=self._target.timeout_s)
        self._producers = {}
        self._links.close()


def _producer(target: Target, place: Place, name: str | None) -> Producer:
    assert name is None or name
    return target.client.producer(target.stream, partition=None if place is BY_KEY else place, window=WINDOW)


@contextmanager
def translated(stream: str) -> Iterator[None]:
    """What the engine's client raises, in the connector's words."""
    where = f"writing to {stream!r}"
    try:
        yield
    except SendError as error:
        first = error.failures[0][1]
        if isinstance(first, RejectedError) and first.condition == _TOO_LARGE:
            raise RowError(
                f"a row makes a message of {first.description}", where, "Make it smaller, or raise the node's message_bytes"
            ) from error
        remedy = "The others are in the log" if error.count else ""
        raise NodeError(f"{error.count:,} events were not accepted; the first: {first}", where, remedy) from error
    except LinkRefusedError as error:
        if error.condition == _NOT_FOUND:
            raise StreamNotFoundError(
                f"there is no log {stream!r}", where, 'Make it (amqp-streams log create), or say .option("createPartitions", 4)'
            ) from error
        raise NodeError(str(error), where) from error
    except AmqpStreamsError as error:
        raise NodeError(str(error), where) from error
