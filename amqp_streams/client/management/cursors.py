"""The cursors that a node keeps, of subscriptions and of consumer groups, as `$management` reports them.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from amqp_streams import names
from amqp_streams.client.options import AfterOffset, AfterTime, Earliest, Latest, StartAt, start_of
from amqp_streams.wire.codec import Symbol, Timestamp
from amqp_streams.wire.offsets import offset_number, offset_text


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """The position of a cursor in one partition. A value is None if the node did not send it.

    `offset`: the last event before the position; None at the beginning. `next_number`: offset of the next
    event. `lag`: how many events follow. `epoch` and `member`: those of the owner in the group.
    """

    partition: str
    offset: int | None = None
    next_number: int | None = None
    lag: int | None = None
    epoch: int | None = None
    member: str | None = None


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """A cursor of a subscription (`container` and `link` identify it) or of a consumer group (`group`).

    `active`: a link is using it. `members_known`, `members_reason`: see `GroupInfo`.
    """

    log: str
    id: str
    group: str | None = None
    container: str | None = None
    link: str | None = None
    user: str | None = None
    active: bool = False
    updated_ms: int | None = None
    positions: tuple[CursorPosition, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    members_known: bool = True
    members_reason: str | None = None


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group. `active`: it has links. `waiting`: how many of them wait for a partition.

    `members_known` false: the node could not ask the node that decides about the group (Kafka), for
    `members_reason`. Then owners and waiting attaches are those that it knows itself, and may be missing.
    """

    log: str
    name: str
    active: bool = False
    waiting: int | None = None
    updated_ms: int | None = None
    positions: tuple[CursorPosition, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    members_known: bool = True
    members_reason: str | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """The container-ids of the members that own partitions, sorted, each once."""
        return tuple(sorted({position.member for position in self.positions if position.member is not None}))


@dataclass(frozen=True, slots=True)
class GroupList:
    """Consumer groups. `incomplete`: why some may be missing; empty: none is."""

    groups: tuple[GroupInfo, ...]
    incomplete: tuple[str, ...] = ()


def lag_of(positions: tuple[CursorPosition, ...]) -> int | None:
    """Return the sum of the lags of all partitions; None if none is known."""
    known = [position.lag for position in positions if position.lag is not None]
    return sum(known) if known else None


def listed(answer: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """Return the entries of the list `name` in an answer."""
    entries = answer.get(name)
    return (
        [_texts(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )


def cursor_info(entry: Mapping[str, object]) -> CursorInfo:
    """Convert the entry of a cursor."""
    return CursorInfo(
        str(entry.get(names.INFO_LOG)),
        str(entry.get(names.CURSOR_ID)),
        group=_text(entry.get(names.CURSOR_GROUP)),
        container=_text(entry.get(names.CURSOR_CONTAINER)),
        link=_text(entry.get(names.CURSOR_LINK)),
        user=_text(entry.get(names.CURSOR_USER)),
        active=entry.get(names.CURSOR_ACTIVE) is True,
        updated_ms=_number(entry.get(names.CURSOR_UPDATED)),
        positions=_positions(entry),
        details=dict(entry),
        members_known=entry.get(names.MEMBERS_KNOWN) is not False,
        members_reason=_text(entry.get(names.MEMBERS_REASON)),
    )


def group_info(entry: Mapping[str, object]) -> GroupInfo:
    """Convert the entry of a group."""
    return GroupInfo(
        str(entry.get(names.INFO_LOG)),
        str(entry.get(names.NAME)),
        active=entry.get(names.CURSOR_ACTIVE) is True,
        waiting=_number(entry.get(names.CURSOR_WAITING)),
        updated_ms=_number(entry.get(names.CURSOR_UPDATED)),
        positions=_positions(entry),
        details=dict(entry),
        members_known=entry.get(names.MEMBERS_KNOWN) is not False,
        members_reason=_text(entry.get(names.MEMBERS_REASON)),
    )


def reset_body(given: StartAt, partition: str | None) -> dict[str, object]:
    """Return the body of a request that moves a cursor: the next event is the first one after `given`."""
    where: dict[str, object]
    match start_of(given):
        case Earliest():
            where = {names.RESET_POSITION: names.OFFSET_EARLIEST}
        case Latest():
            where = {names.RESET_POSITION: names.OFFSET_LATEST}
        case AfterOffset(offset):
            where = {names.CURSOR_OFFSET: Symbol(offset_text(offset))}
        case AfterTime(timestamp_ms):
            where = {names.RESET_TIMESTAMP: Timestamp(timestamp_ms)}
        case _ as never:
            assert_never(never)
    return where if partition is None else where | {names.INFO_PARTITION: partition}


def _positions(entry: Mapping[str, object]) -> tuple[CursorPosition, ...]:
    return tuple(
        CursorPosition(
            str(each.get(names.INFO_PARTITION)),
            offset=offset_number(each.get(names.CURSOR_OFFSET)),
            next_number=_number(each.get(names.CURSOR_NEXT)),
            lag=_number(each.get(names.CURSOR_LAG)),
            epoch=_number(each.get(names.CURSOR_EPOCH)),
            member=_text(each.get(names.CURSOR_MEMBER)),
        )
        for each in listed(entry, names.INFO_PARTITIONS)
    )


def _texts(entry: Mapping[object, object]) -> dict[str, object]:
    return {str(key): value for key, value in entry.items()}


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
