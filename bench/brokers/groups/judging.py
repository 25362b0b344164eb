"""Whether the promises about groups, epochs and cursors were kept, from the traces of everything. Pure.

Owner: when a node is asked whether it may write to a link, no later link has been granted the slot. The node
asks again after the write: if a later link has been granted by then, the node must have closed the link, so
that only bytes that were already in the kernel's buffers reach the old owner's client. Epoch: epochs and
terms never fall, in the topic and in grants. Cursor: a cursor never passes an event that no owner settled
before, and never falls; what an earlier owner's client settles does not count. A receiver that settles second
never gets an event again that the node has settled.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.brokers.groups.traces import Event, Grant, Journals, NodeTraces, Slot, StateRecord, Tenures
from bench.brokers.verdict import SHOWN_MAX, Place

_CLOCK_US = 2000
"""How much a time of the state topic may differ: the wall clock is corrected slowly, and has milliseconds."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What became of groups and subscriptions. `violations`: in words.

    `late_closed`: writes that a stop of the process delayed beyond the next grant; their links were closed.
    `received_late`: events that came to an earlier owner's client after the next grant, out of the buffers of
    the kernel, and `latest_ms`: how much later. `stale`: settlements of earlier owners, which counted for
    nothing.
    """

    grants: int
    deliveries: int
    redelivered: int
    settled: int
    stale: int
    states: int
    two_owners: int
    late_closed: int
    received_late: int
    latest_ms: int
    epochs_fallen: int
    cursors_ahead: int
    cursors_fallen: int
    settled_again: int
    reordered: int
    missed: int
    violations: tuple[str, ...]


@dataclass(slots=True)
class _Judge:
    """Counts violations by kind, and keeps the first words of each."""

    counts: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def found(self, kind: str, words: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= SHOWN_MAX:
            self.words.append(f"{kind}: {words}")


def judge_groups(
    nodes: NodeTraces,
    journals: Journals,
    states: Sequence[StateRecord],
    stored: Mapping[int, Sequence[Place]],
    wanted: Collection[Slot],
) -> GroupVerdict:
    """Compare traces, journals, the state topic and the log. `wanted`: the slots that had consumers."""
    judge, tenures = _Judge(), Tenures(nodes.grants)
    late_closed = _owners(judge, nodes, tenures)
    _order(judge, nodes)
    _epochs(judge, tenures, states)
    settled, stale = _effective(journals.settles, tenures)
    offsets = {partition: [place.offset for place in places] for partition, places in stored.items()}
    _cursors(judge, states, settled, offsets)
    _settled_again(judge, journals)
    _content(judge, journals, stored, wanted)
    late = [
        event.at_us - owner.at_us
        for event in journals.got
        if (owner := tenures.owner(event.slot, event.at_us)) is not None
        and owner.container != event.container
    ]
    return GroupVerdict(
        grants=len(nodes.grants),
        deliveries=len(journals.got),
        redelivered=len(journals.got) - len(journals.ids),
        settled=len(settled),
        stale=stale,
        states=len(states),
        two_owners=judge.counts.get("two owners", 0),
        late_closed=late_closed,
        received_late=len(late),
        latest_ms=max(late, default=0) // 1000,
        epochs_fallen=judge.counts.get("epoch fell", 0),
        cursors_ahead=judge.counts.get("cursor ahead", 0),
        cursors_fallen=judge.counts.get("cursor fell", 0),
        settled_again=judge.counts.get("settled event came again", 0),
        reordered=judge.counts.get("reordered", 0),
        missed=judge.counts.get("missed", 0),
        violations=tuple(judge.words),
    )


def _owners(judge: _Judge, nodes: NodeTraces, tenures: Tenures) -> int:
    """Look at each write; returns how many were late and closed their links."""
    for send in nodes.sends:
        grant = tenures.of_link.get(send.link)
        if grant is None:
            continue
        slot = next((each for each in grant.slots if each[1] == send.partition), None)
        later = None if slot is None else tenures.successor(grant, slot, send.asked_us)
        if later is not None:
            judge.found("two owners", _written(grant, later, send.asked_us, f"offset {send.first}"))
    closed = 0
    for write in nodes.writes:
        grant = tenures.of_link.get(write.link)
        if grant is None:
            continue
        for slot in grant.slots:
            later = tenures.successor(grant, slot, write.at_us)
            if later is None:
                continue
            if write.closed:
                closed += 1
            else:
                judge.found("two owners", _written(grant, later, write.at_us, "and the link was not closed"))
            break
    return closed


def _written(grant: Grant, later: Grant, at_us: int, what: str) -> str:
    after_ms = (at_us - later.at_us) / 1000
    return (
        f"{grant.slots} {grant.link} ({grant.container}) wrote {after_ms:.1f} ms after the grant of"
        f" {later.link} ({later.container}), {what}"
    )


def _order(judge: _Judge, nodes: NodeTraces) -> None:
    """What is sent for the first time on a link has ascending offsets."""
    last: dict[tuple[object, int], int] = {}
    for send in nodes.sends:
        key = send.link, send.partition
        if send.first <= last.get(key, -1):
            judge.found("reordered", f"{send.link} sent {send.first} after {last[key]}")
        last[key] = send.last


def _epochs(judge: _Judge, tenures: Tenures, states: Iterable[StateRecord]) -> None:
    for slot in tenures.slots:
        epoch = -1
        for grant in tenures.of(slot):
            if grant.epoch is not None:
                if grant.epoch < epoch:
                    judge.found("epoch fell", f"{slot} was granted {grant.epoch} after {epoch}")
                epoch = max(epoch, grant.epoch)
    reached: dict[tuple[int, str], int] = {}
    for record in states:
        if record.number is not None:
            key = record.bucket, record.key
            if record.number < reached.get(key, -1):
                judge.found("epoch fell", f"{key} fell from {reached[key]} to {record.number}")
            reached[key] = max(record.number, reached.get(key, -1))


def _effective(settles: Iterable[Event], tenures: Tenures) -> tuple[dict[tuple[Slot, int], int], int]:
    """When each event was first settled by the owner of that moment, and how many settlements were stale."""
    found: dict[tuple[Slot, int], int] = {}
    stale = 0
    for event in settles:
        owner = tenures.owner(event.slot, event.at_us)
        if owner is None or owner.container != event.container:
            stale += 1
            continue
        key = event.slot, event.offset
        found[key] = min(event.at_us, found.get(key, event.at_us))
    return found, stale


def _cursors(
    judge: _Judge,
    states: Iterable[StateRecord],
    settled: Mapping[tuple[Slot, int], int],
    offsets: Mapping[int, Sequence[int]],
) -> None:
    """Go through all records. `reached`: by slot, the position, and the index of its offset."""
    reached: dict[Slot, tuple[int, int]] = {}
    for record in states:
        if record.cursor is None:
            continue
        for partition, position in record.positions:
            slot = record.cursor, partition
            before, index = reached.get(slot, (0, 0))
            if position < before:
                judge.found("cursor fell", f"{slot} fell from {before} to {position}")
            known = offsets.get(partition, ())
            while index < len(known) and known[index] < position:
                at_us = settled.get((slot, known[index]))
                if at_us is None or at_us > record.at_us + _CLOCK_US:
                    when = "never" if at_us is None else f"{(at_us - record.at_us) / 1000:.1f} ms later"
                    judge.found("cursor ahead", f"{slot} is {position}, {known[index]} was settled {when}")
                index += 1
            reached[slot] = max(position, before), index


def _settled_again(judge: _Judge, journals: Journals) -> None:
    known = {(event.slot, event.offset): event.at_us for event in reversed(journals.settled)}
    for event in journals.got:
        at_us = known.get((event.slot, event.offset))
        if at_us is not None and event.at_us > at_us:
            after_ms = (event.at_us - at_us) / 1000
            judge.found("settled event came again", f"{event.slot} {event.offset}, {after_ms:.1f} ms later")


def _content(
    judge: _Judge, journals: Journals, stored: Mapping[int, Sequence[Place]], wanted: Collection[Slot]
) -> None:
    """Each consumer got the events that are in the log, and all of them."""
    for slot in sorted(wanted):
        for place in stored.get(slot[1], ()):
            ids = journals.ids.get((slot, place.offset))
            if ids is None:
                judge.found("missed", f"{slot} never got {place}")
            elif ids != {f"{place.producer}:{place.number}"}:
                judge.found("missed", f"{slot} got {sorted(ids)} for {place}")
