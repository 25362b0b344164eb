"""Where logs begin and end: what it takes to plan which ranges to read."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from amqp_streams import names
from amqp_streams.client.errors import LinkError, ManagementError
from amqp_streams.wire.codec import Symbol, Timestamp

_BAD_REQUEST: Final = 400

Ask = Callable[[str, Mapping[str, object]], Awaitable[Mapping[str, object]]]
"""Sends an operation with its body to `$management`; the body of the answer."""


@dataclass(frozen=True, slots=True)
class PartitionExtent:
    """A moment's bounds of one partition: the events from offset `earliest` to before `next` are there; none
    when they are equal.

    `bytes`: held on the disk. The timestamps, in milliseconds since 1970 UTC, are None when it is empty.
    `found`: offset of the first event at or after the time that was asked for, `next` when there is none;
    None: no time was asked for.
    """

    partition: str
    earliest: int
    next: int
    bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    state: str
    found: int | None = None


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The bounds of a log's partitions.

    `incarnation` tells the log from a namesake that was deleted or is made later.
    """

    log: str
    incarnation: str
    partitions: tuple[PartitionExtent, ...]


async def ask_extents(ask: Ask, logs: Sequence[str], *, missing_ok: bool) -> dict[str, LogExtent]:
    """The extents of logs: in one answer, or in several if the logs have more partitions than the node
    describes in one (400).

    Raises: what `ask` and `read_extents` raise.
    """
    try:
        return read_extents(await ask(names.EXTENTS, extents_body(logs, missing_ok=missing_ok)))
    except ManagementError as error:
        if error.status != _BAD_REQUEST or len(logs) < 2:
            raise
    middle = len(logs) // 2
    first = await ask_extents(ask, logs[:middle], missing_ok=missing_ok)
    return first | await ask_extents(ask, logs[middle:], missing_ok=missing_ok)


def extents_body(
    logs: Sequence[str],
    partitions: Sequence[str] | None = None,
    timestamp_ms: int | None = None,
    *,
    missing_ok: bool = False,
) -> dict[str, object]:
    """What is asked."""
    body: dict[str, object] = {names.EXTENT_LOGS: list(logs)}
    if missing_ok:
        body[names.EXTENT_MISSING_OK] = True
    if partitions is not None:
        body[names.INFO_PARTITIONS] = [Symbol(partition) for partition in partitions]
    if timestamp_ms is not None:
        body[names.RESET_TIMESTAMP] = Timestamp(timestamp_ms)
    return body


def read_extents(answer: Mapping[str, object]) -> dict[str, LogExtent]:
    """What is answered, by log.

    Raises:
        LinkError: that is something else.
    """
    try:
        return {extent.log: extent for extent in map(_extent, _list(answer[names.EXTENT_LOGS]))}
    except (KeyError, TypeError, ValueError) as error:
        raise LinkError(
            names.DECODE_ERROR, f"the answer is not about where logs begin and end: {error!r}"
        ) from error


def _extent(entry: Any) -> LogExtent:
    partitions = tuple(_partition(each) for each in _list(entry[names.INFO_PARTITIONS]))
    return LogExtent(str(entry[names.NAME]), str(entry[names.INFO_INCARNATION]), partitions)


def _partition(entry: Any) -> PartitionExtent:
    return PartitionExtent(
        str(entry[names.INFO_PARTITION]),
        int(entry[names.EXTENT_EARLIEST]),
        int(entry[names.EXTENT_NEXT]),
        int(entry[names.INFO_BYTES]),
        _number(entry.get(names.INFO_FIRST_TIMESTAMP)),
        _number(entry.get(names.INFO_LAST_TIMESTAMP)),
        str(entry[names.INFO_STATE]),
        _number(entry.get(names.EXTENT_FOUND)),
    )


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
