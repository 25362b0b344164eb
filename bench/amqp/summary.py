"""Tables of the results: medians over the rounds, and ratios to one target."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from bench.amqp.targets import Options, Result

Results = dict[str, Result]


def middle(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def summarise(rounds: Sequence[Result]) -> dict[str, list[float]]:
    """name of the figure -> list with one value per round"""
    figures: dict[str, list[float]] = {}

    def add(key: str, value: float | None) -> None:
        if value is not None:
            figures.setdefault(key, []).append(value)

    for r in rounds:
        add("cold_start_s", r.get("cold_start_s"))
        if r.get("rss_idle"):
            add("rss_idle_MB", r["rss_idle"] / 1e6)
        if r.get("rss_peak"):
            add("rss_peak_MB", r["rss_peak"] / 1e6)
        for c in r.get("cells", ()):
            tag = f"{c['size']}x{c['connections']}"
            for side in ("send", "recv"):
                x = c[side]
                if x and x["ok"]:
                    add(f"{side}_{tag}", x["msgs_per_s"])
                    add(f"{side}_MB_{tag}", x["MB_per_s"])
                    if "foreign_cpu" in x:
                        add(f"{side}_cpu_{tag}", x["broker_cpu_s"] * 1e5 / x["messages"])
                        add("foreign_cpu", x["foreign_cpu"])
            if c["send"]["ok"] and c["send"].get("rss_after"):
                add(f"rss_backlog_MB_{tag}", c["send"]["rss_after"] / 1e6)
        latency = r.get("latency")
        if latency and latency["ok"]:
            for q in ("p50", "p99", "p99.9"):
                add(f"latency_{q}", latency["from_send_ms"][q])
                add(f"latency_sched_{q}", latency["latency_ms"][q])
                add(f"ack_{q}", latency["ack_ms"][q])
    return figures


def number(value: float | None) -> str:
    """Return a figure with two to four digits."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1000:.{0 if value >= 10000 else 1}f}k"
    if value >= 10:
        return f"{value:.{0 if value >= 100 else 1}f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def table(results: Results, options: Options) -> str:
    sizes, conns = options.sizes, options.connections
    columns = [("target", ""), ("messages", "count")]
    columns += [(f"send {s} B x{c}", f"send_{s}x{c}") for s in sizes for c in conns]
    columns += [(f"recv {s} B", f"recv_{s}x{conns[0]}") for s in sizes]
    columns += [
        ("p50 ms", "latency_p50"),
        ("p99 ms", "latency_p99"),
        ("p99.9 ms", "latency_p99.9"),
        ("ack p50", "ack_p50"),
        ("ack p99", "ack_p99"),
        ("CPU s/100k send", f"send_cpu_{sizes[0]}x{conns[0]}"),
        ("CPU s/100k recv", f"recv_cpu_{sizes[0]}x{conns[0]}"),
        ("RSS idle MB", "rss_idle_MB"),
        ("RSS backlog MB", f"rss_backlog_MB_{sizes[-1]}x{conns[0]}"),
        ("RSS peak MB", "rss_peak_MB"),
        ("cold start s", "cold_start_s"),
        ("other load", "foreign_cpu"),
    ]
    lines = ["| " + " | ".join(c[0] for c in columns) + " |", "|---" * len(columns) + "|"]
    for name, data in results.items():
        f = data["figures"]
        row = [name, number(data["count"])]
        for _, key in columns[2:]:
            v = middle(f.get(key, []))
            row.append("-" if v is None else f"{v:.0%}" if key == "foreign_cpu" else number(v))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def limits_table(limits: Sequence[Result]) -> str:
    lines = ["| limit | median | lowest to highest |", "|---|---|---|"]
    for name in limits[0]:
        for unit in limits[0][name]:
            v = [each[name][unit] for each in limits]
            lines.append(f"| {name} {unit} | {number(middle(v))} | {number(min(v))} to {number(max(v))} |")
    return "\n".join(lines)


def ratios(results: Results, options: Options, base: str) -> str:
    keys = [f"send_{s}x{c}" for s in options.sizes for c in options.connections]
    keys += [f"recv_{s}x{options.connections[0]}" for s in options.sizes] + ["latency_p50", "latency_p99"]
    reference = {k: middle(results[base]["figures"].get(k, [])) for k in keys}
    lines = [f"| relative to {base} | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for name, data in results.items():
        row = [name]
        for k in keys:
            v, r = middle(data["figures"].get(k, [])), reference[k]
            row.append(f"{v / r:.2f}" if v and r else "-")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def show(results: Results, limits: Sequence[Result], options: Options) -> None:
    print(table(results, options))
    if options.relative_to in results:
        print()
        print(ratios(results, options, options.relative_to))
    if limits:
        print()
        print(limits_table(limits))


QUIET_WHEN_ZERO = {
    "rejected",
    "released",
    "modified",
    "no_outcome",
    "bad_payload",
    "foreign",
    "extra",
    "overrun",
    "duplicates",
    "out_of_order",
    "missing",
    "error",
}


def slim(value: Any) -> Any:
    """The same without the counters that are zero, to keep the file small."""
    if isinstance(value, dict):
        return {k: slim(v) for k, v in value.items() if v or k not in QUIET_WHEN_ZERO}
    return [slim(v) for v in value] if isinstance(value, list) else value
