"""Shows the health of a node to people and programs. Pure."""

from collections.abc import Iterator
from dataclasses import asdict

from amqp_streams.cli.terminal.console import human_bytes, human_duration
from amqp_streams.cli.terminal.rendering import iso_time, plain
from amqp_streams.client import NodeInfo, Used


def health_json(node: NodeInfo) -> dict[str, object]:
    """The health of a node as JSON values."""
    return {
        "version": node.version,
        "container": node.container,
        "store": node.store,
        "data_dir": node.data_dir,
        "sync": node.sync,
        "started": iso_time(node.started_ms),
        "uptime_ms": node.uptime_ms,
        "ready": node.ready,
        "not_ready": node.not_ready,
        "disk": {
            "free_bytes": node.disk_free,
            "size_bytes": node.disk_size,
            "reserve_bytes": node.disk_reserve,
        },
        "memory_bytes": node.memory,
        "descriptors": asdict(node.descriptors),
        "commits": {
            "count": node.commits,
            "p50_seconds": node.commit_p50_s,
            "p99_seconds": node.commit_p99_s,
            "max_seconds": node.commit_max_s,
        },
        "logs": node.logs,
        "producers": node.producers,
        "consumers": node.consumers,
        "limits": {name: asdict(use) for name, use in node.limits.items()},
        "warnings": [asdict(each) for each in node.warnings],
        "settings": {
            each.name: {"value": plain(each.value), "source": each.source} for each in node.settings
        },
        "changes": [
            {
                "at": iso_time(each.at_ms),
                "user": each.user,
                "what": each.what,
                "type": each.type,
                "name": each.name,
                "details": dict(each.details),
            }
            for each in node.changes
        ],
    }


def health_lines(node: NodeInfo) -> Iterator[tuple[str, str]]:
    """The figures that people read, each with its name."""
    yield "ready", "yes" if node.ready else f"no: {node.not_ready}"
    since = iso_time(node.started_ms)
    if node.uptime_ms is not None:
        # Milliseconds say nothing about the time that a node runs.
        yield "started", f"{since}, {human_duration(node.uptime_ms // 1000 * 1000)} ago"
    yield "version", node.version
    connections = node.limits.get("connections")
    if connections is not None:
        links = f"{node.producers or 0:,} producers, {node.consumers or 0:,} consumers"
        yield "connections", f"{_used(connections)}; {links}"
    if node.disk_free is not None and node.disk_size is not None:
        yield "disk", f"{human_bytes(node.disk_free)} free of {human_bytes(node.disk_size)}"
    if node.memory is not None:
        yield "memory", human_bytes(node.memory)
    if node.descriptors.used is not None:
        yield "descriptors", _used(node.descriptors)
    if node.commit_p50_s is not None and node.commit_p99_s is not None:
        times = f"{_ms(node.commit_p50_s)} (50 %), {_ms(node.commit_p99_s)} (99 %)"
        yield "sync", f"{node.sync}; recent commits: {times}"


def warning_lines(node: NodeInfo) -> Iterator[str]:
    """The warnings with their remedies."""
    for each in node.warnings:
        yield f"{'error' if each.is_error else 'warning'}: {each.text}"
        yield f"  remedy: {each.remedy}"


def _used(use: Used) -> str:
    return f"{use.used:,}" if use.limit is None else f"{use.used or 0:,} of {use.limit:,}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
