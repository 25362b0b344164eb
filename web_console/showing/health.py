"""The figures of a node as rows of a table, with what is kept of them over time. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from amqp_streams.client import NodeInfo, Used
from web_console.showing import numbers

_LIMITS: Final = {
    "connections": "Connections",
    "partitions": "Partitions",
    "cursors": "Cursors",
    "pending_bytes": "Bytes waiting for the disk",
    "request_bytes": "Bytes of waiting requests",
}
"""The bounds that people look at, and their titles. `amqp-streams status --json` has all."""


class Figure(NamedTuple):
    """A row: a title, the value now, what it may be at most, its values over time, and their name."""

    title: str
    value: str
    limit: str
    trend: Sequence[float]
    name: str


def trends_of(node: NodeInfo) -> dict[str, float]:
    """The figures that are kept over time, by the name of their row."""
    found = {name: use.used for name, use in node.limits.items() if name in _LIMITS}
    more = {
        "disk": node.disk_free,
        "memory": node.memory,
        "descriptors": node.descriptors.used,
        "producers": node.producers,
        "consumers": node.consumers,
        "homes": node.home_buckets.used,
        "commit_p50": node.commit_p50_s,
        "commit_p99": node.commit_p99_s,
    }
    return {name: float(value) for name, value in (found | more).items() if value is not None}


def figure_rows(node: NodeInfo, trends: Mapping[str, Sequence[float]]) -> list[Figure]:
    """The rows, in order."""
    rows = [
        _row("Free space of the disk", "disk", numbers.size(node.disk_free), numbers.size(node.disk_size)),
        _row("Memory", "memory", numbers.size(node.memory), "-"),
        _row("File descriptors", "descriptors", *_used(node.descriptors)),
        _row("Sync of a commit, 50 %", "commit_p50", _ms(node.commit_p50_s), "-"),
        _row("Sync of a commit, 99 %", "commit_p99", _ms(node.commit_p99_s), "-"),
        *(
            _row(title, name, *_used(node.limits[name], size=name.endswith("_bytes")))
            for name, title in _LIMITS.items()
            if name in node.limits
        ),
        *(
            [_row("Buckets of groups that this node decides about", "homes", *_used(node.home_buckets))]
            if node.home_buckets.used is not None
            else []
        ),
        _row("Links of producers", "producers", numbers.count(node.producers), "-"),
        _row("Links of consumers", "consumers", numbers.count(node.consumers), "-"),
    ]
    return [each._replace(trend=trends.get(each.name, ())) for each in rows]


def _row(title: str, name: str, value: str, limit: str) -> Figure:
    return Figure(title, value, limit, (), name)


def _used(use: Used, *, size: bool = False) -> tuple[str, str]:
    shown = numbers.size if size else numbers.count
    return shown(use.used), shown(use.limit)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f} ms"
