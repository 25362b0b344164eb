"""What a gateway says about itself: its answer, with bounds, as pages show it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from web_console.gateway.values import mapping, mappings, number, text
from web_console.showing import numbers
from web_console.showing.health import Figure

_ROWS_MAX: Final = 1000
_SETTING_MAX: Final = 2000
_USES: Final = {
    "descriptors": "File descriptors",
    "connections": "Connections from clients",
    "subscriberConnections": "Connections to subscribers",
    "pendingEvents": "Events that are not durable yet",
    "pendingBytes": "Their bytes",
}
_BYTES: Final = frozenset({"pendingBytes"})


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning with its remedy."""

    text: str
    remedy: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """What a user changed. `user`: None: without a login."""

    at_ms: int | None
    user: str | None
    what: str
    type: str
    name: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of the gateway."""

    worker: int | None
    pid: int | None
    leads: bool
    not_ready: str


@dataclass(frozen=True, slots=True)
class LogNode:
    """The node with the events. `unknown`: why nothing is known about it; empty if it is known."""

    unknown: str
    ready: bool
    not_ready: str
    version: str
    warnings: Sequence[Warned]


@dataclass(frozen=True, slots=True)
class Condition:
    """A gateway at one moment. `figures`: by name, those that have a trend."""

    ready: bool
    not_ready: str
    version: str
    database: str
    started_ms: int | None
    uptime_ms: int | None
    workers: Sequence[Worker]
    warnings: Sequence[Warned]
    changes: Sequence[Changed]
    settings: Sequence[Setting]
    node: LogNode
    rows: Sequence[Figure]
    figures: Mapping[str, float]


def condition_of(document: Mapping[str, Any]) -> Condition:
    """Return what an answer says. What is missing in it is shown as not known."""
    figures, node = mapping(document.get("figures")), mapping(document.get("node"))
    seconds = number(document.get("upSeconds"))
    rows = [*_rows(figures, node)]
    return Condition(
        ready=document.get("ready") is True,
        not_ready=text(document.get("notReady")),
        version=text(document.get("version"), 100),
        database=text(document.get("stateDatabase"), 100),
        started_ms=_ms(document.get("started")),
        uptime_ms=None if seconds is None else seconds * 1000,
        workers=[_worker(each) for each in mappings(document.get("workers"), _ROWS_MAX)],
        warnings=_warnings(document),
        changes=[_changed(each) for each in mappings(document.get("changes"), _ROWS_MAX)],
        settings=[_setting(each) for each in mappings(document.get("settings"), _ROWS_MAX)],
        node=LogNode(
            text(node.get("unknown")),
            node.get("ready") is True,
            text(node.get("notReady")),
            text(node.get("version"), 100),
            _warnings(node),
        ),
        rows=[figure for figure, _ in rows],
        figures={figure.name: value for figure, value in rows if value is not None},
    )


def _rows(figures: Mapping[str, Any], node: Mapping[str, Any]) -> list[tuple[Figure, float | None]]:
    uses = mapping(figures.get("uses"))
    rows = [
        _size("Free space of the disk", "disk", figures.get("diskFreeBytes"), figures.get("diskSizeBytes")),
        _size("Memory of all processes", "memory", figures.get("memoryBytes")),
        *(_used(title, name, mapping(uses.get(name))) for name, title in _USES.items() if name in uses),
        _time("Since positions were stored", "positions", figures.get("positionsStoredSecondsAgo")),
    ]
    if not node.get("unknown"):
        free, whole = node.get("diskFreeBytes"), node.get("diskSizeBytes")
        rows += [
            _size("Log node: free space of its disk", "node_disk", free, whole),
            _size("Log node: memory", "node_memory", node.get("memoryBytes")),
            _time("Log node: sync of a commit, 50 %", "commit_p50", node.get("commitSecondsP50")),
            _time("Log node: sync of a commit, 99 %", "commit_p99", node.get("commitSecondsP99")),
        ]
    return rows


def _size(title: str, name: str, value: object, limit: object = None) -> tuple[Figure, float | None]:
    found = number(value)
    return Figure(title, numbers.size(found), numbers.size(number(limit)), (), name), found


def _used(title: str, name: str, use: Mapping[str, Any]) -> tuple[Figure, float | None]:
    shown = numbers.size if name in _BYTES else numbers.count
    used, limit = number(use.get("used")), number(use.get("limit"))
    return Figure(title, shown(used), shown(limit), (), name), used


def _time(title: str, name: str, value: object) -> tuple[Figure, float | None]:
    found = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return Figure(title, "-" if found is None else f"{found * 1000:,.1f} ms", "-", (), name), found


def _warnings(document: Mapping[str, Any]) -> list[Warned]:
    return [
        Warned(text(each.get("text")), text(each.get("remedy")), each.get("error") is True)
        for each in mappings(document.get("warnings"), _ROWS_MAX)
    ]


def _changed(row: Mapping[str, Any]) -> Changed:
    user, details = row.get("user"), mapping(row.get("details"))
    return Changed(
        _ms(row.get("at")),
        None if user is None else text(user),
        text(row.get("what"), 100),
        text(row.get("type"), 100),
        text(row.get("name")),
        {text(name, 100): text(value) for name, value in list(details.items())[:_ROWS_MAX]},
    )


def _setting(row: Mapping[str, Any]) -> Setting:
    value = row.get("value")
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else text(value, _SETTING_MAX)
    return Setting(text(row.get("name")), None if value is None else shown, text(row.get("source")))


def _worker(row: Mapping[str, Any]) -> Worker:
    return Worker(
        number(row.get("worker")),
        number(row.get("pid")),
        row.get("leads") is True,
        text(row.get("notReady")) or ("" if row.get("ready") is True else "not ready"),
    )


def _ms(written: object) -> int | None:
    if not isinstance(written, str):
        return None
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
