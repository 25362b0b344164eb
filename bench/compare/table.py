"""The tables of `make bench`, in Markdown. Pure: runs in, text out."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench.compare.figures import OURS, REFERENCE, Run, latest, short
from bench.compare.goals import WINDOWS, Row

_CELLS: Final = tuple(
    (f"{size}x{c}", f"{words}, {c}") for size, words in ((100, "100 B"), (1024, "1 KiB")) for c in (1, 4)
)
ONE_BY_ONE: Final = (
    *((f"send_{cell}", f"in {words}") for cell, words in _CELLS),
    *((f"recv_{cell}", f"out {words}") for cell, words in _CELLS),
    ("latency_p50", "p50 ms"),
    ("latency_p99", "p99 ms"),
    ("send_cpu_us_100x1", "CPU us in"),
    ("recv_cpu_us_100x1", "CPU us out"),
    ("rss_peak_MB", "RSS MB"),
)
BATCHES: Final = (
    *((f"batched_send_{cell}_w{w}", f"in {words}, {w:,}") for w in WINDOWS for cell, words in _CELLS),
    *((f"batched_recv_{cell}", f"out {words}") for cell, words in _CELLS),
)
BATCHES_CPU: Final = (
    *((f"batched_send_{cell}_w{w}_cpu_us", f"in {words}, {w:,}") for w in WINDOWS for cell, words in _CELLS),
    *((f"batched_recv_{cell}_cpu_us", f"out {words}") for cell, words in _CELLS),
)
PYTHON: Final = (
    *((f"python_send_{cell}", f"in {words}") for cell, words in _CELLS),
    ("python_recv_100x1", "out 100 B, 1"),
    ("python_recv_1024x1", "out 1 KiB, 1"),
)
GATEWAY: Final = (
    ("gateway_1", "1 Trigger, events/s"),
    ("gateway_1000", "1,000 Triggers, events/s"),
    ("gateway_cpu_us_1", "CPU us an event, 1 Trigger"),
    ("gateway_cpu_us_1000", "CPU us an event, 1,000 Triggers"),
    ("gateway_node_us_1", "CPU us of the node, 1 Trigger"),
    ("gateway_p50", "p50 ms at 200/s"),
    ("gateway_p99", "p99 ms"),
)
TABLES: Final = (
    ("One by one: messages a second, number of connections behind the size", ONE_BY_ONE),
    ("In batches: events a second; size, connections, events in flight of a connection", BATCHES),
    ("In batches: CPU us of the serving process for an event", BATCHES_CPU),
    ("In batches with the Python client: events a second", PYTHON),
    ("Gateway, from POST to POST", GATEWAY),
)
ORDER: Final = (OURS, REFERENCE, "kafka", "knative")
WORDS: Final[Mapping[bool | None, str]] = {True: "yes", False: "NO", None: "not measured"}


def products(runs: Sequence[Run]) -> list[str]:
    """All measured products, ours first."""
    found = {name: None for run in runs for name in run.values}
    return [name for name in ORDER if name in found] + [name for name in found if name not in ORDER]


def figures_tables(runs: Sequence[Run]) -> str:
    """The latest figures; a figure that no product has makes no row. Products are columns."""
    lines: list[str] = []
    versions = {name: version for run in runs for name, version in run.versions.items()}
    for title, rows in TABLES:
        having = [
            name for name in products(runs) if any(latest(runs, name, key) is not None for key, _ in rows)
        ]
        if not having:
            continue
        heads = [f"{name} {versions.get(name, '')}".strip() for name in having]
        lines += ["", title + ":", "", f"| figure | {' | '.join(heads)} |", "|---" * (len(having) + 1) + "|"]
        for key, words in rows:
            values = [latest(runs, name, key) for name in having]
            if any(value is not None for value in values):
                cells = ["-" if value is None else short(value) for value in values]
                lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def goals_table(rows: Sequence[Row]) -> str:
    """The goals and what of them is reached."""
    lines = ["", "| what | ours | compared with | goal | got | reached |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.what} | {row.ours} | {row.beside} | {row.wanted} | {row.got} | {WORDS[row.reached]} |"
        for row in rows
    ]
    reached, unknown = sum(row.reached is True for row in rows), sum(row.reached is None for row in rows)
    lines += ["", f"{reached} of {len(rows)} goals reached, {unknown} not measured."]
    return "\n".join(lines)


def missing_words(runs: Sequence[Run]) -> str:
    """What is not in the tables although it was asked for, and has not been measured since."""
    words: dict[str, None] = {}
    for run in runs:
        measured = set(run.values)
        words = {word: None for word in words if word.split(":", 1)[0] not in measured}
        words.update(dict.fromkeys(run.missing))
    return "\n".join(["", *(f"Not measured: {word}" for word in words)]) if words else ""
