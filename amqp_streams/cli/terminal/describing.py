"""Describes a log for people: its settings, its events, and who reads it. Pure."""

from collections.abc import Iterator, Sequence

from amqp_streams.cli.terminal.console import human_bytes, human_duration, stored_size
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.client import CursorInfo, GroupInfo, LogInfo
from amqp_streams.client.management.cursors import lag_of
from amqp_streams.log_settings import LOG_SETTINGS, Kind, LogSetting, SettingValue
from service_parts.texts import printable

_SHOWN_MAX = 8


def described_lines(
    log: LogInfo, groups: Sequence[GroupInfo] | None, cursors: Sequence[CursorInfo] | None
) -> Iterator[str]:
    """Yield the lines that describe a log. `groups`, `cursors`: None if the user has no right to see them."""
    yield log.log
    for name, value in _facts(log, groups, cursors):
        yield f"  {name + ':':18}{value}"


def setting_text(setting: LogSetting, value: SettingValue) -> str:
    """Return a setting of a log as people write it."""
    if setting.kind is Kind.CHOICE or isinstance(value, str):
        return str(value or "-")
    if value is None:
        return "no limit"
    if setting.kind is Kind.COUNT:
        return f"{value:,}"
    return human_duration(value) if setting.kind is Kind.DURATION else human_bytes(value)


def _facts(
    log: LogInfo, groups: Sequence[GroupInfo] | None, cursors: Sequence[CursorInfo] | None
) -> Iterator[tuple[str, str]]:
    partitions = log.partitions
    events = [one.event_count or 0 for one in partitions]
    yield "partitions", f"{len(partitions):,}"
    yield "events", f"{sum(events):,}{_skew([one.partition for one in partitions], events)}"
    yield "bytes", stored_size(sum(one.bytes or 0 for one in partitions), sum(events))
    first = [one.first_timestamp_ms for one in partitions if one.first_timestamp_ms is not None]
    last = [one.last_timestamp_ms for one in partitions if one.last_timestamp_ms is not None]
    yield "first event", iso_time(min(first)) or "-" if first else "-"
    yield "last event", iso_time(max(last)) or "-" if last else "-"
    for setting in LOG_SETTINGS:
        if not setting.fixed:
            name = setting.flag.removeprefix("--").replace("-", " ")
            yield name, setting_text(setting, log.settings.get(setting.field))
    yield "sync", log.sync or "-"
    yield "incarnation", log.incarnation or "-"
    yield "consumer groups", _readers(
        None if groups is None else [
            (one.name, f"{_members(one)}, lag {_lag(one)}") for one in groups
        ]
    )  # fmt: skip
    yield "subscriptions", _readers(
        None if cursors is None else [
            (one.link or one.id, f"{_active(one)}, lag {_lag(one)}")
            for one in cursors if one.group is None
        ]
    )  # fmt: skip


def _skew(partitions: Sequence[str], events: Sequence[int]) -> str:
    """The smallest and the largest partition, if the largest has more than twice the average."""
    if not events or max(events) * len(events) <= 2 * sum(events):
        return ""
    most, least = events.index(max(events)), events.index(min(events))
    return (
        f" (uneven: {events[most]:,} in partition {partitions[most]},"
        f" {events[least]:,} in partition {partitions[least]})"
    )


def _readers(found: Sequence[tuple[str, str]] | None) -> str:
    if found is None:
        return "not visible to this user"
    shown = [f"{printable(name)} ({details})" for name, details in found[:_SHOWN_MAX]]
    more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
    return (", ".join(shown) or "none") + more


def _members(one: GroupInfo) -> str:
    return f"{len(one.members)} members" if one.members_known else "members not known"


def _active(one: CursorInfo) -> str:
    if not one.members_known:
        return "not known if active"
    return "active" if one.active else "not active"


def _lag(one: GroupInfo | CursorInfo) -> str:
    lag = lag_of(tuple(one.positions))
    return "-" if lag is None else f"{lag:,}"
