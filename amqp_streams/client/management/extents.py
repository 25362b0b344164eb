"""The first and next offsets of logs, as numbers: the input for planning which ranges to read."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from amqp_streams import names
from amqp_streams.client.errors import LinkError, ManagementError
from amqp_streams.wire.codec import Symbol, Timestamp

_BAD_REQUEST: Final = 400

Ask = Callable[[str, Mapping[str, object]], Awaitable[Mapping[str, object]]]
"""Sends an operation with this body to `$management` and returns the body of the answer."""


@dataclass(frozen=True, slots=True)
class PartitionExtent:
    """The bounds of one partition at one moment: it has the events from offset `earliest` to before `next`.

    It is empty if both are equal; then the timestamps (milliseconds since 1970 UTC) are None. `bytes`: its
    size on the disk. `found`: offset of the first event at or after the requested time, or `next` if no event
    is that late; None: no time was requested. `gaps`: some offsets between `earliest` and `next` belong to no
    event.
    """

    partition: str
    earliest: int
    next: int
    bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    state: str
    found: int | None = None
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The bounds of a log's partitions.

    `incarnation` distinguishes it from other logs of the same name, earlier or later.

    `events_out`: events that the node has sent to consumers since it started. `consumers`: links to this node
    that read the log. `groups`: its consumer groups. They are None if the node does not send them: an earlier
    version sends none of them, `consumers` and `groups` need the right `manage`, and nodes on Kafka send no
    `groups`.
    """

    log: str
    incarnation: str
    partitions: tuple[PartitionExtent, ...]
    events_out: int | None = None
    consumers: int | None = None
    groups: int | None = None


async def ask_extents(ask: Ask, logs: Sequence[str], *, missing_ok: bool) -> dict[str, LogExtent]:
    """Return the extents of logs, by name.

    A request has at most `EXTENT_NAMES_MAX` names. If the node refuses because of too many partitions (400),
    each half is requested separately.

    Raises:
        what `ask` and `read_extents` raise.
    """
    if len(logs) <= names.EXTENT_NAMES_MAX:
        try:
            return read_extents(await ask(names.EXTENTS, extents_body(logs, missing_ok=missing_ok)))
        except ManagementError as error:
            # One log cannot be divided: the error is the answer.
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
    """Return the body of the request."""
    body: dict[str, object] = {names.EXTENT_LOGS: list(logs)}
    if missing_ok:
        body[names.EXTENT_MISSING_OK] = True
    if partitions is not None:
        body[names.INFO_PARTITIONS] = [Symbol(partition) for partition in partitions]
    if timestamp_ms is not None:
        body[names.RESET_TIMESTAMP] = Timestamp(timestamp_ms)
    return body


def read_extents(answer: Mapping[str, object]) -> dict[str, LogExtent]:
    """Return the extents in an answer, by log.

    Raises:
        LinkError: the answer is not valid.
    """
    try:
        return {extent.log: extent for extent in map(_extent, _list(answer[names.EXTENT_LOGS]))}
    except (KeyError, TypeError, ValueError) as error:
        raise LinkError(
            names.DECODE_ERROR, f"the answer of the node does not contain valid extents: {error!r}"
        ) from error


def _extent(entry: Any) -> LogExtent:
    partitions = tuple(_partition(each) for each in _list(entry[names.INFO_PARTITIONS]))
    return LogExtent(
        str(entry[names.NAME]),
        str(entry[names.INFO_INCARNATION]),
        partitions,
        _number(entry.get(names.EXTENT_EVENTS_OUT)),
        _number(entry.get(names.EXTENT_CONSUMERS)),
        _number(entry.get(names.EXTENT_GROUPS)),
    )


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
        entry.get(names.INFO_GAPS) is True,
    )


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
