"""The positions that a request sets a cursor to.

Spec: AMQP Management 1.0 (working draft); Event Streams 5.1.1, 5.1.2.

Law: as in a source's filter, the given offset or timestamp is excluded: the next event is the first one after
it.
"""

from collections.abc import Callable, Mapping
from typing import Final

from amqp_streams import names
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.management import BAD_REQUEST, Request, RequestError
from amqp_streams.streams.routing import partition_index
from amqp_streams.wire.offsets import parse_offset
from amqp_streams.wire.types import Value

_TARGETS: Final = (names.CURSOR_OFFSET, names.RESET_TIMESTAMP, names.RESET_POSITION)
_KNOWN: Final = frozenset({names.INFO_LOG, names.INFO_PARTITION, *_TARGETS})
_WAYS: Final = (
    f"one of {names.CURSOR_OFFSET!r} (16 digits), {names.RESET_TIMESTAMP!r} (ms) and {names.RESET_POSITION!r}"
)


def requested_positions(
    request: Request, log: StoredLog, sought: Mapping[int, int] | None = None
) -> dict[int, int]:
    """By partition, the position that the request sets.

    `sought`: the answers of `seek_timestamp` by partition, as far as they are known.

    Raises:
        RequestError: the request has no target or several, or an unknown partition or offset.
    """
    body = {str(key): value for key, value in request.body.items() if value is not None}
    unknown = sorted(body.keys() - _KNOWN)
    if unknown:
        raise RequestError(
            BAD_REQUEST, f"unknown entry {unknown[0][:64]!r}: known are {', '.join(sorted(_KNOWN))}"
        )
    given = [name for name in _TARGETS if name in body]
    if len(given) != 1:
        raise RequestError(BAD_REQUEST, f"the request has {len(given)} targets: give {_WAYS}")
    partitions = _partitions(body.get(names.INFO_PARTITION), log)
    target = _READERS[given[0]](body[given[0]], partitions)
    known = sought or {}
    return {each.index: known[each.index] if each.index in known else target(each) for each in partitions}


def requested_lookup(request: Request, log: StoredLog) -> tuple[tuple[Partition, ...], int | None]:
    """The partitions and the time that `requested_positions` looks up; no time if it does not."""
    after_ms, name = request.body.get(names.RESET_TIMESTAMP), request.body.get(names.INFO_PARTITION)
    if isinstance(after_ms, bool) or not isinstance(after_ms, int):
        return (), None
    if name is None:
        return log.partitions, after_ms
    index = partition_index(name, len(log.partitions)) if isinstance(name, str) else None
    return (() if index is None else (log.partitions[index],)), after_ms


def _partitions(name: Value, log: StoredLog) -> tuple[Partition, ...]:
    if name is None:
        return log.partitions
    index = partition_index(name, len(log.partitions)) if isinstance(name, str) else None
    if index is None:
        raise RequestError(
            BAD_REQUEST,
            f"log {log.name!r} has no partition {str(name)[:64]!r}: use 0 to {len(log.partitions) - 1}",
        )
    return (log.partitions[index],)


_Target = Callable[[Partition], int]


def _offset(value: Value, partitions: tuple[Partition, ...]) -> _Target:
    if not isinstance(value, str):
        raise RequestError(BAD_REQUEST, f"{names.CURSOR_OFFSET!r} must be a symbol or a string")
    try:
        position = parse_offset(value)
    except ValueError as error:
        raise RequestError(BAD_REQUEST, str(error)) from error
    if not isinstance(position, int):
        return _position(value, partitions)
    if len(partitions) > 1:
        raise RequestError(BAD_REQUEST, f"an offset needs a partition: name it in {names.INFO_PARTITION!r}")
    if position >= partitions[0].end:
        raise RequestError(
            BAD_REQUEST, f"partition {partitions[0].index} has no event with offset {value!r} yet"
        )
    return lambda _partition: position + 1


def _timestamp(value: Value, _partitions: tuple[Partition, ...]) -> _Target:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(
            BAD_REQUEST, f"{names.RESET_TIMESTAMP!r} must be a timestamp, or milliseconds since 1970 UTC"
        )
    return lambda partition: partition.seek_timestamp(value)


def _position(value: Value, _partitions: tuple[Partition, ...]) -> _Target:
    if value == names.OFFSET_EARLIEST:
        return lambda partition: partition.start
    if value == names.OFFSET_LATEST:
        return lambda partition: partition.end
    raise RequestError(
        BAD_REQUEST, f"{names.RESET_POSITION!r} must be {names.OFFSET_EARLIEST!r} or {names.OFFSET_LATEST!r}"
    )


_READERS: Final[dict[str, Callable[[Value, tuple[Partition, ...]], _Target]]] = {
    names.CURSOR_OFFSET: _offset,
    names.RESET_TIMESTAMP: _timestamp,
    names.RESET_POSITION: _position,
}
