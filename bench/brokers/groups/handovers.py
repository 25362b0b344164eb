"""How long buckets and partitions had no owner after a node was killed or stopped. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.brokers.groups.traces import Link, NodeTraces, Serving, Tenures

End = Literal["killed", "drained"]


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """A node was killed, or got SIGTERM, while nothing else was disturbed. `process`: its trace."""

    at_us: int
    process: str
    how: End


@dataclass(frozen=True, slots=True)
class Handovers:
    """Seconds, in ascending order, of one kind of end.

    `homes`: until another node decided for a bucket. `partitions`: until a link at any node had a partition
    that a link at this node had.
    """

    homes: tuple[float, ...] = ()
    partitions: tuple[float, ...] = ()

    def words(self) -> str:
        """For people."""
        return f"homes {_words(self.homes)}; partitions {_words(self.partitions)}"


def handovers(
    nodes: NodeTraces, ends: Iterable[NodeEnd], *, without: Collection[str] = ()
) -> dict[End, Handovers]:
    """All hand-overs, by kind. `without`: the keys of consumers that wait before they attach again."""
    grants = [grant for grant in nodes.grants if all(key not in without for key, _ in grant.slots)]
    tenures, found = Tenures(grants), dict[End, Handovers]()
    given = list(ends)
    kinds: tuple[End, ...] = ("killed", "drained")
    for how in kinds:
        homes, partitions = list[float](), list[float]()
        for end in given:
            if end.how == how:
                homes += _homes(nodes.servings, end)
                partitions += _partitions(nodes, tenures, end)
        found[how] = Handovers(tuple(sorted(homes)), tuple(sorted(partitions)))
    return found


def _homes(servings: Sequence[Serving], end: NodeEnd) -> list[float]:
    served, found = dict[int, int | None](), list[float]()
    for each in sorted(servings, key=lambda one: one.at_us):
        if each.at_us <= end.at_us and each.process == end.process:
            served[each.bucket] = each.term
        elif each.at_us > end.at_us and each.term is not None and each.process != end.process:
            before = served.pop(each.bucket, None)
            found += [] if before is None else [(each.at_us - end.at_us) / 1e6]
    return found


def _partitions(nodes: NodeTraces, tenures: Tenures, end: NodeEnd) -> list[float]:
    found = []
    for slot in tenures.slots:
        owner = tenures.owner(slot, end.at_us)
        if owner is None or owner.link.process != end.process or _ended(nodes, owner.link, end.at_us):
            continue
        later = tenures.next(slot, end.at_us)
        if later is not None:
            found.append((later.at_us - end.at_us) / 1e6)
    return found


def _ended(nodes: NodeTraces, link: Link, before_us: int) -> bool:
    return nodes.ends.get(link, before_us + 1) <= before_us


def _words(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    middle = seconds[len(seconds) // 2]
    high = seconds[min(len(seconds) - 1, len(seconds) * 95 // 100)]
    return f"{len(seconds)}: median {middle:.1f} s, p95 {high:.1f} s, longest {seconds[-1]:.1f} s"
