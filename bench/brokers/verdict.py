"""Whether accepted events are in the log, in order, and came to every reader. Pure.

An event is a producer's name and a number. A producer sends its numbers in ascending order to each partition.
Only accepted events count for loss and order: an event whose outcome its producer does not know may be in the
log or not, at any place. An event may be in the log twice if its producer sent it again after it lost the
connection to its node, unless the producer is idempotent.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

SHOWN_MAX = 5
"""How many examples of a violation are named."""


class Place(NamedTuple):
    """An event at an offset of a partition, as it is in the log or as a reader got it."""

    offset: int
    producer: str
    number: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the events. `violations`: in words, empty if every promise was kept.

    `refused`: accepted events that Kafka may have refused before. `doubled`: events that are in the log more
    than once, all copies after the first counted.
    """

    accepted: int
    stored: int
    lost: int
    reordered: int
    refused: int
    doubled: int
    readers: int
    violations: tuple[str, ...]


def judge(
    stored: Mapping[int, Sequence[Place]],
    accepted: Mapping[int, Mapping[str, Collection[int]]],
    read: Mapping[str, Mapping[int, Sequence[Place]]],
    refused: Mapping[int, Mapping[str, Collection[int]]] = MappingProxyType({}),
    once: Collection[str] = (),
) -> Verdict:
    """Compare what is in each partition, what was accepted by partition and producer, and what readers got.

    A reader is compared in the partitions that it has read. `refused`: accepted events that Kafka may not
    have taken in time, so that their producers sent them again: events that were in flight behind them may
    have overtaken them. `once`: the idempotent producers.
    """
    violations: list[str] = []
    lost = reordered = overtaken = doubled = count = 0
    for partition in sorted(stored.keys() | accepted.keys()):
        places = stored.get(partition, ())
        firsts, copies = _firsts(places)
        doubled += copies
        counts = Counter((place.producer, place.number) for place in places if place.producer in once)
        if twice := sorted(number for (_, number), copied in counts.items() if copied > 1):
            violations.append(f"partition {partition} has {_some(twice)} of idempotent producers twice")
        for producer, numbers in sorted(accepted.get(partition, {}).items()):
            count += len(numbers)
            missing = sorted(number for number in numbers if (producer, number) not in firsts)
            lost += len(missing)
            if missing:
                violations.append(f"partition {partition} lost {_some(missing)} of {producer}")
            again = refused.get(partition, {}).get(producer, ())
            overtaken += len(again)
            judged = set(numbers).difference(again)
            late = _late([number for each, number in firsts if each == producer and number in judged])
            reordered += len(late)
            if late:
                violations.append(f"partition {partition} has {_some(late)} of {producer} out of order")
    for reader, got in sorted(read.items()):
        for partition, places in sorted(got.items()):
            if fault := _difference(stored.get(partition, ()), places):
                violations.append(f"{reader}, partition {partition}: {fault}")
    total = sum(map(len, stored.values()))
    return Verdict(count, total, lost, reordered, overtaken, doubled, len(read), tuple(violations))


def _firsts(places: Sequence[Place]) -> tuple[dict[tuple[str, int], int], int]:
    """The first offset of each event, in the order of the log, and how many copies follow."""
    firsts: dict[tuple[str, int], int] = {}
    for place in places:
        firsts.setdefault((place.producer, place.number), place.offset)
    return firsts, len(places) - len(firsts)


def _late(numbers: Sequence[int]) -> list[int]:
    """The numbers that come after a greater one."""
    late, greatest = [], -1
    for number in numbers:
        if number < greatest:
            late.append(number)
        greatest = max(greatest, number)
    return late


def _difference(stored: Sequence[Place], got: Sequence[Place]) -> str:
    """What a reader got that is not the partition; empty if it is."""
    if list(stored) == list(got):
        return ""
    offsets = [place.offset for place in got]
    twice = len(offsets) - len(set(offsets))
    missing = sorted({place.offset for place in stored} - set(offsets))
    if missing or twice:
        return f"missed {_some(missing)}, got {twice} twice"
    at = next(
        (index for index, (left, right) in enumerate(zip(stored, got, strict=False)) if left != right), -1
    )
    if at < 0:
        return f"got {len(got) - len(stored)} events that are not in the log"
    return f"got {got[at]} for {stored[at]}"


def _some(numbers: Sequence[int]) -> str:
    """How many numbers, and the first of them."""
    shown = ", ".join(map(str, numbers[:SHOWN_MAX]))
    more = ", …" if len(numbers) > SHOWN_MAX else ""
    return f"{len(numbers)} events ({shown}{more})" if numbers else "0 events"
