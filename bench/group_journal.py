"""What the members of a consumer group wrote down, and whether it is what a group promises. Pure.

A member writes a line the moment something happens, with the machine's monotonic clock (nanoseconds, the same
for all processes): `a PARTITION NS` assigned, `r PARTITION NS` revoked, `e PARTITION NS NUMBER` an event is
started with. Laws that `judge` holds them to: every accepted event is done; each tenure goes up by one from
event to event, and the next goes on where the last stopped; only a killed member's unsettled events are done
again; no two tenures of a partition overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

UNSETTLED_NS_MAX: Final = 2_000_000_000
"""What is done again was begun at most so long before the kill: settlements need some time to the node, and
turns of busy processors.
"""
_COMPLAINTS_MAX: Final = 20


@dataclass(slots=True)
class Tenure:
    """A partition in the hands of one member, from assigned to revoked or killed.

    `events`: when, and which number.
    """

    member: str
    partition: str
    assigned_ns: int
    events: list[tuple[int, int]] = field(default_factory=list)
    revoked_ns: int | None = None
    killed_ns: int | None = None

    @property
    def first_ns(self) -> int:
        """The first event."""
        return self.events[0][0]

    @property
    def last_ns(self) -> int:
        """The last event."""
        return self.events[-1][0]


@dataclass(slots=True)
class Verdict:
    """What was found. Times are in milliseconds: from a kill, or the last event before a move, to the next
    owner's first event.
    """

    complaints: list[str] = field(default_factory=list)
    after_kill_ms: list[float] = field(default_factory=list)
    after_move_ms: list[float] = field(default_factory=list)
    done: int = 0
    repeated: int = 0

    def complain(self, words: str) -> None:
        """Keep the first complaints; more tell nothing new."""
        if len(self.complaints) < _COMPLAINTS_MAX:
            self.complaints.append(words)


def tenures(member: str, lines: Iterable[str], killed_ns: int | None) -> list[Tenure]:
    """Read one member's journal. A last line without an end, cut off by a kill, is left out."""
    found: list[Tenure] = []
    current: dict[str, Tenure] = {}
    for line in lines:
        if not line.endswith("\n"):
            break
        kind, partition, ns, *number = line.split()
        if kind == "a":
            current[partition] = Tenure(member, partition, int(ns))
            found.append(current[partition])
        elif kind == "r":
            current.pop(partition).revoked_ns = int(ns)
        else:
            current[partition].events.append((int(ns), int(number[0])))
    for tenure in current.values():
        tenure.killed_ns = killed_ns
    return found


def judge(found: Sequence[Tenure], accepted: Mapping[str, int]) -> Verdict:
    """Hold what all members did against the promises.

    `accepted`: how many events each partition has, numbered from 0.
    """
    verdict = Verdict()
    for partition, count in sorted(accepted.items()):
        held = sorted(
            (tenure for tenure in found if tenure.partition == partition and tenure.events),
            key=lambda each: each.first_ns,
        )
        _judge_events(held, partition, count, verdict)
        _judge_owners(held, verdict)
        _measure(held, [tenure for tenure in found if tenure.partition == partition], verdict)
    return verdict


def _judge_events(held: Sequence[Tenure], partition: str, count: int, verdict: Verdict) -> None:
    next_number = 0
    begun_ns: dict[int, int] = {}
    before: Tenure | None = None
    for tenure in held:
        first = tenure.events[0][1]
        if first > next_number:
            verdict.complain(
                f"partition {partition}: {first - next_number} events from {next_number} on were left out"
                f" before {tenure.member}"
            )
        for (_, number), (_, following) in pairwise(tenure.events):
            if following != number + 1:
                verdict.complain(f"partition {partition}: {tenure.member} did {following} after {number}")
        again = [number for _, number in tenure.events if number in begun_ns]
        if again:
            _judge_repeats(before, tenure, begun_ns[again[0]], len(again), verdict)
        begun_ns.update((number, ns) for ns, number in tenure.events)
        next_number = max(next_number, tenure.events[-1][1] + 1)
        before = tenure
    verdict.done += len(begun_ns)
    missing = [number for number in range(count) if number not in begun_ns]
    if missing:
        verdict.complain(
            f"partition {partition}: {len(missing)} accepted events were not done, the first is {missing[0]}"
        )


def _judge_repeats(
    before: Tenure | None, tenure: Tenure, begun_ns: int, count: int, verdict: Verdict
) -> None:
    verdict.repeated += count
    assert before is not None
    if before.killed_ns is None:
        verdict.complain(
            f"partition {tenure.partition}: {tenure.member} repeats {count} events of {before.member}, which"
            " was not killed"
        )
    elif before.killed_ns - begun_ns > UNSETTLED_NS_MAX:
        age_ms = (before.killed_ns - begun_ns) / 1e6
        verdict.complain(
            f"partition {tenure.partition}: an event is repeated that was begun {age_ms:.0f} ms before"
            f" {before.member} was killed"
        )


def _judge_owners(held: Sequence[Tenure], verdict: Verdict) -> None:
    for earlier, later in pairwise(held):
        if later.first_ns <= earlier.last_ns:
            overlap_ms = (earlier.last_ns - later.first_ns) / 1e6
            verdict.complain(
                f"partition {earlier.partition}: {earlier.member} and {later.member} had it together for"
                f" {overlap_ms:.1f} ms"
            )


def _measure(held: Sequence[Tenure], every: Sequence[Tenure], verdict: Verdict) -> None:
    for ended in every:
        if ended.killed_ns is not None:
            following = [
                tenure.first_ns
                for tenure in held
                if tenure is not ended and tenure.first_ns > ended.killed_ns
            ]
            verdict.after_kill_ms += [(min(following) - ended.killed_ns) / 1e6] if following else []
    for earlier, later in pairwise(held):
        if earlier.killed_ns is None and earlier.member != later.member:
            verdict.after_move_ms.append((later.first_ns - earlier.last_ns) / 1e6)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
