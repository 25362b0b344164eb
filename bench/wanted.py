"""What is wanted of the engine's speed, and whether figures meet it. Pure: figures in, verdicts out.

Every row of the table is told once, here; `docs/performance.md` quotes what `make bench` prints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.compare.figures import OURS, Run, short
from bench.compare.goals import Row
from bench.peers import OURS_PARTITIONED, PRODUCTS, SYNCS_BEFORE_VISIBLE, Figures

MILLION: Final = 1_000_000
CPU_SECONDS_PER_100K_TO_US: Final = 10.0

# figure -> (what it is, at least this many times the best peer)
AT_LEAST: Final = {
    "send_100x1": ("accepted/s, 100 B, 1 connection", 3.0),
    "send_100x4": ("accepted/s, 100 B, 4 connections", 2.5),
    "send_1024x1": ("accepted/s, 1 KiB, 1 connection", 3.0),
    "send_1024x4": ("accepted/s, 1 KiB, 4 connections", 2.5),
    "recv_100x1": ("delivered/s, 100 B backlog", 3.0),
    "recv_1024x1": ("delivered/s, 1 KiB backlog", 3.0),
    "recv_100x4": ("delivered/s, 100 B backlog of 4 writers", 3.0),
    "recv_1024x4": ("delivered/s, 1 KiB backlog of 4 writers", 3.0),
}
# figure -> (what it is, at most this many microseconds)
CPU_AT_MOST_US: Final = {
    "send_cpu_100x1": ("server CPU per accepted message, 100 B", 3.5),
    "recv_cpu_100x1": ("server CPU per delivered message, 100 B", 3.0),
}
RSS_AT_MOST_MB: Final = 150.0
# figure -> (what it is, share of one partition's, whether that is the least or the most)
PARTITIONED: Final = {
    "send_100x1": ("64 partitions: accepted/s, 1 connection", 0.75, True),
    "send_100x4": ("64 partitions: accepted/s, 4 connections", 0.75, True),
    "recv_100x1": ("64 partitions: delivered/s", 0.75, True),
    "latency_p99": ("64 partitions: p99 end to end", 1.5, False),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One wanted figure. `met` is None when it could not be measured."""

    what: str
    ours: str
    against: str
    wanted: str
    got: str
    met: bool | None


def verdicts(figures: Mapping[str, Figures]) -> list[Verdict]:
    """Judge the figures of one run, the products among them as the peers."""
    ours, partitioned = figures.get(OURS), figures.get(OURS_PARTITIONED)
    peers = [figures[name] for name in PRODUCTS if name in figures]
    rows = [_at_least(what, factor, key, ours, peers) for key, (what, factor) in AT_LEAST.items()]
    rows.append(_p99(ours, [peer for peer in peers if peer.name in SYNCS_BEFORE_VISIBLE]))
    rows += [_cpu(what, bound, key, ours) for key, (what, bound) in CPU_AT_MOST_US.items()]
    rows.append(_memory(ours))
    rows += [
        _share(what, bound, key, (ours, partitioned), least=least)
        for key, (what, bound, least) in PARTITIONED.items()
    ]
    return rows


def rows(runs: Sequence[Run]) -> list[Row]:
    """The verdicts as rows of the table of goals: each of the latest run that has its figures."""
    latest: list[Verdict] = verdicts({})
    for run in runs:
        judged = verdicts(as_figures(run))
        latest = [old if new.met is None else new for old, new in zip(latest, judged, strict=True)]
    return [Row(one.what, one.ours, one.against, one.wanted, one.got, one.met) for one in latest]


def as_figures(run: Run) -> dict[str, Figures]:
    """The figures of a run by product."""
    return {
        name: Figures(
            name,
            run.versions.get(name, ""),
            "",
            int(values.get("count", 0)),
            values,
            values.get("rss_after_bytes"),
        )
        for name, values in run.values.items()
    }


def best(key: str, peers: Sequence[Figures], *, most: bool) -> Figures | None:
    """The peer with the highest (`most`) or lowest value of a figure."""
    having = [peer for peer in peers if peer.get(key) is not None]
    pick = max if most else min
    return pick(having, key=lambda peer: peer.values[key]) if having else None


def _at_least(what: str, factor: float, key: str, ours: Figures | None, peers: Sequence[Figures]) -> Verdict:
    wanted, mine, peer = f">= {factor:g}x", _value(ours, key), best(key, peers, most=True)
    if mine is None or peer is None:
        return _unmeasured(what, wanted, mine, peer)
    ratio = mine / peer.values[key]
    return Verdict(
        what, short(mine), f"{peer.name} {short(peer.values[key])}", wanted, f"{ratio:.2f}x", ratio >= factor
    )


def _p99(ours: Figures | None, peers: Sequence[Figures]) -> Verdict:
    what, wanted, key = "p99 end to end at 1,000/s, ms", "<= 1x", "latency_p99"
    mine, peer = _value(ours, key), best(key, peers, most=False)
    if mine is None or peer is None:
        return _unmeasured(what, wanted, mine, peer)
    ratio = mine / peer.values[key]
    return Verdict(
        what, short(mine), f"{peer.name} {short(peer.values[key])}", wanted, f"{ratio:.2f}x", ratio <= 1.0
    )


def _cpu(what: str, bound_us: float, key: str, ours: Figures | None) -> Verdict:
    wanted, per_100k = f"<= {bound_us:g} us", _value(ours, key)
    if per_100k is None:
        return _unmeasured(what, wanted, None, None)
    cost_us = per_100k * CPU_SECONDS_PER_100K_TO_US
    return Verdict(what, f"{cost_us:.2f} us", "", wanted, f"{cost_us:.2f} us", cost_us <= bound_us)


def _memory(ours: Figures | None) -> Verdict:
    wanted = f"< {RSS_AT_MOST_MB:g} MB"
    if ours is None or ours.rss_after_bytes is None or ours.count < MILLION:
        return _unmeasured("resident memory after 1,000,000 messages", wanted, None, None)
    megabytes = ours.rss_after_bytes / 1e6
    what = f"resident memory after {ours.count:,} messages"
    return Verdict(what, f"{megabytes:.0f} MB", "", wanted, f"{megabytes:.0f} MB", megabytes < RSS_AT_MOST_MB)


def _share(
    what: str, bound: float, key: str, pair: tuple[Figures | None, Figures | None], *, least: bool
) -> Verdict:
    one, many = (_value(figures, key) for figures in pair)
    wanted = f"{'>=' if least else '<='} {bound:g}x"
    if one is None or many is None:
        return _unmeasured(what, wanted, many, None)
    ratio = many / one
    return Verdict(
        what,
        short(many),
        f"1 partition {short(one)}",
        wanted,
        f"{ratio:.2f}x",
        ratio >= bound if least else ratio <= bound,
    )


def _value(figures: Figures | None, key: str) -> float | None:
    return None if figures is None else figures.get(key)


def _unmeasured(what: str, wanted: str, mine: float | None, peer: Figures | None) -> Verdict:
    return Verdict(
        what, short(mine) if mine is not None else "-", peer.name if peer else "-", wanted, "-", None
    )
