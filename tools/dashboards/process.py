"""Panels about the process, which nodes and gateways share. Pure."""

from collections.abc import Sequence

from tools.dashboards.panels import Graph, Panel, Query


def process_panels(chosen: str) -> Sequence[Panel]:
    """Return the panels. `chosen`: the matchers that choose the processes."""
    return (
        Graph(
            "CPU",
            "Cores that the process uses. One process uses about one core for its events.",
            "short",
            (Query(f"rate(process_cpu_seconds_total{{{chosen}}}[$__rate_interval])", "{{instance}}"),),
            width=8,
        ),
        Graph(
            "Memory",
            "Resident memory of the process.",
            "bytes",
            (Query(f"process_resident_memory_bytes{{{chosen}}}", "{{instance}}"),),
            width=8,
        ),
        Graph(
            "Open files",
            "Descriptors in use, as a part of the limit. At 1 the process accepts no connections.",
            "percentunit",
            (Query(f"process_open_fds{{{chosen}}} / process_max_fds{{{chosen}}}", "{{instance}}"),),
            width=8,
        ),
    )
