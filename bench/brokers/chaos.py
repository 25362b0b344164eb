"""`make chaos`: brokers, nodes and clients are killed, stopped, cut off and restarted, while producers,
readers, and consumers in groups, with epochs and with durable subscriptions use all nodes.

Three brokers, three nodes with a section `node`, and three processes with consumers. Disturbances of brokers,
nodes and clients are chosen from the seed, independently of each other, so they overlap. In the end each
accepted event must be in the log, in the order of its producer and partition; each reader must have got each
partition exactly as it is in Kafka; and the promises about groups must hold: see `groups.judging`. Then, with
all parts in order, nodes are killed and drained one at a time: how long had their partitions no owner?

    python -m bench.brokers.chaos [--seconds 1200] [--seed 1] [--handovers 5] [--with gateway,spark] [--json]

`--with gateway`: two gateways with one database serve a Broker with two Triggers, and each event that they
accept must be delivered by both. `--with spark`: a streaming query must get the log exactly as it is.

Exit status 0 when all of that holds; 1 otherwise. Times are printed, not judged.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.brokers.companions import KINDS, Companion, companions
from bench.brokers.groups.fleet import CLAIMS, SECOND, SLOTS, Fleet, slots
from bench.brokers.groups.following import StateReader
from bench.brokers.groups.handovers import End, Handovers, NodeEnd, handovers
from bench.brokers.groups.judging import GroupVerdict, judge_groups
from bench.brokers.groups.traced_node import boot_us
from bench.brokers.groups.traces import Journals, NodeTraces, Slot
from bench.brokers.havoc import Havoc
from bench.brokers.load import Load, Reader, Writer
from bench.brokers.verdict import Place, Verdict, judge
from bench.brokers.world import PREFIX, TracedNode, World, running, stored

LOG: Final = "chaos"
SETTLED_S_MAX: Final = 240.0
_TAKEN_OVER_S: Final = 14.0
"""After a node was killed: session, lease and 2 s are 11 s."""
_JOINED_S: Final = 10.0
"""After a node has started again: it joins the group and gets buckets."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `hold_s`, `pause_s`: how long a disturbance lasts, and the time until the next.

    `idempotent`: how many of the writers are. `groups`: how many of each settle mode. `calm_s`: how long the
    clients go on after the last disturbance. `handovers`: how many nodes are killed then, and as many
    drained.
    """

    seconds: float = 1200.0
    seed: int = 1
    nodes: int = 3
    partitions: int = 4
    writers: int = 4
    idempotent: int = 2
    readers: int = 1
    rate: float = 10.0
    groups: int = 2
    companions: tuple[str, ...] = ()
    calm_s: float = 15.0
    handovers: int = 5
    hold_s: tuple[float, float] = (0.5, 20.0)
    pause_s: tuple[float, float] = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed. `pause_s`: the longest time in which no event of a producer was accepted.

    `progress_s`: after the last disturbance, when each partition of each group had got a later event.
    """

    verdict: Verdict
    groups: GroupVerdict
    handovers: dict[End, Handovers]
    progress_s: float
    disturbances: dict[str, int]
    sent: int
    resent: int
    unknown: int
    errors: dict[str, int]
    pause_s: dict[str, float]
    companions: dict[str, object]
    complaints: tuple[str, ...]

    @property
    def violations(self) -> tuple[str, ...]:
        """All promises that were not kept."""
        return (*self.verdict.violations, *self.groups.violations, *self.complaints)


@dataclass(slots=True)
class Run:
    """Everything that runs."""

    plan: Plan
    folder: Path
    world: World
    load: Load
    fleet: Fleet
    states: StateReader
    havoc: Havoc
    ends: list[NodeEnd]
    companions: list[Companion]

    async def disturb(self) -> "Calm":
        """Disturb, and wait until the clients have gone on."""
        self.load.start()
        for slot in range(SLOTS):
            self.fleet.start(slot)
        began = time.monotonic()
        await self.havoc.run(self.plan.seconds)
        calm = Calm(began, time.monotonic(), boot_us(), {each.name: each.sent for each in self.load.writers})
        await asyncio.sleep(self.plan.calm_s)
        for number in range(self.plan.handovers):
            await self._hand_over(number % self.plan.nodes, "killed")
            await self._hand_over((number + 1) % self.plan.nodes, "drained")
        return calm

    async def _hand_over(self, number: int, how: End) -> None:
        """End one node while all else is in order, and start it again."""
        node = self.world.nodes[number]
        assert isinstance(node, TracedNode)
        self.havoc.say(f"node {number + 1} is {how}")
        self.ends.append(NodeEnd(boot_us(), node.trace, how))
        await asyncio.to_thread(node.kill if how == "killed" else node.stop)
        await asyncio.sleep(_TAKEN_OVER_S)
        await node.restart()
        await asyncio.sleep(_JOINED_S)

    async def settle(self) -> "Ended":
        """Stop the producers, let the consumers finish, and stop all clients."""
        complaints = self.havoc.complaints
        try:
            await self.load.stop_writing(SETTLED_S_MAX)
        except TimeoutError:
            complaints.append("an event had no outcome in time after the last disturbance")
        found = await asyncio.to_thread(stored, self.world.cluster.servers, LOG, self.plan.partitions)
        ends = {partition: places[-1].offset for partition, places in found.items() if places}
        if not await self.load.stop_reading(ends, SETTLED_S_MAX):
            complaints.append("a reader did not reach the end in time after the last disturbance")
        for each in self.companions:
            complaints += await each.settle(found, SETTLED_S_MAX)
        wanted = slots(LOG, self.plan.partitions, self.plan.groups)
        complaints += [
            f"the cursor of {key}, partition {partition}, is {at}, and did not reach {end} in time"
            for (key, partition), at, end in await self._behind(wanted, ends)
        ]
        for slot in range(SLOTS):
            if wrong := await asyncio.to_thread(self.fleet.stop, slot):
                complaints.append(wrong)
        self.states.close()
        complaints += [
            f"node {number} wrote a traceback"
            for number, node in enumerate(self.world.nodes, 1)
            if "Traceback" in node.words
        ]
        # The topics lose nothing, whatever is disturbed here.
        complaints += [
            f"node {number} says that events were lost: {line}"
            for number, node in enumerate(self.world.nodes, 1)
            for line in node.words.splitlines()
            if "events_lost" in line
        ]
        words = self.fleet.words()
        complaints += [f"{name} wrote a traceback" for name, said in words.items() if "Traceback" in said]
        return Ended(found, wanted, self.traces(), self.fleet.journals())

    async def _behind(self, wanted: set[Slot], ends: dict[int, int]) -> list[tuple[Slot, int, int]]:
        """Wait until each cursor has passed the last event; those that have not, with their positions."""
        until = time.monotonic() + SETTLED_S_MAX
        while True:
            positions = self.states.positions()
            behind = [
                (slot, at, ends[slot[1]])
                for slot in sorted(wanted)
                if (at := positions.get(slot[0], {}).get(slot[1], 0)) <= ends.get(slot[1], -1)
            ]
            if not behind or time.monotonic() > until:
                return behind
            await asyncio.sleep(0.5)

    def traces(self) -> NodeTraces:
        """What all processes of nodes wrote."""
        found = NodeTraces()
        for path in sorted(self.folder.glob("node-*/*.trace")):
            with path.open() as lines:
                found.add(path.stem, lines)
        return found


@dataclass(frozen=True, slots=True)
class Calm:
    """When the disturbances began and ended, and the first number that each producer sent afterwards."""

    began: float
    ended: float
    ended_us: int
    sent: dict[str, int]

    def progress_s(self, journals: Journals, wanted: set[Slot]) -> float | None:
        """When each slot had got an event that was sent afterwards; None: one did not."""
        first = dict[Slot, int]()
        for event in journals.got:
            if event.at_us < self.ended_us or event.slot not in wanted:
                continue
            for id_ in journals.ids[event.slot, event.offset]:
                producer, _, number = id_.partition(":")
                if int(number) >= self.sent[producer]:
                    first[event.slot] = min(event.at_us, first.get(event.slot, event.at_us))
        return (max(first.values()) - self.ended_us) / 1e6 if first.keys() == wanted else None


@dataclass(frozen=True, slots=True)
class Ended:
    """What is left of a run."""

    stored: dict[int, list[Place]]
    wanted: set[Slot]
    nodes: NodeTraces
    journals: Journals


async def run(plan: Plan, folder: Path) -> Outcome:
    """Start everything, disturb it, and judge.

    Raises:
        RuntimeError: something does not start.
    """
    options = ("--log", f"{LOG}:{plan.partitions}", "--log-level", "info")
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(
            running(folder, nodes=plan.nodes, options=options, homes=True)
        )
        urls = [tuple(world.urls_from(slot)) for slot in range(SLOTS)]
        fleet = Fleet(folder, urls, LOG, plan.groups, plan.seed)
        stack.callback(fleet.end)
        states = StateReader(world.cluster.servers, PREFIX)
        states.start()
        others = await stack.enter_async_context(companions(plan.companions, folder, world.urls, LOG))
        disturbed = [process for each in others for process in each.processes]
        havoc = Havoc(world, fleet, plan.seed, plan.hold_s, plan.pause_s, disturbed)
        everything = Run(plan, folder, world, _load(plan, world), fleet, states, havoc, [], others)
        calm = await everything.disturb()
        ended = await everything.settle()
        return await asyncio.to_thread(_judged, everything, calm, ended)


def _judged(everything: Run, calm: Calm, ended: Ended) -> Outcome:
    load, complaints = everything.load, everything.havoc.complaints
    read = {each.name: {each.partition: each.got} for each in load.readers}
    once = [each.name for each in load.writers if each.idempotent]
    verdict = judge(ended.stored, load.accepted(), read, load.refused(), once)
    groups = judge_groups(ended.nodes, ended.journals, everything.states.records, ended.stored, ended.wanted)
    progress_s = calm.progress_s(ended.journals, ended.wanted)
    if progress_s is None:
        complaints.append("a partition of a group got no event after the last disturbance")
    clients: list[Writer | Reader] = [*load.writers, *load.readers]
    errors = sum((each.seen.reasons(calm.began, calm.ended) for each in clients), Counter[str]())
    return Outcome(
        verdict,
        groups,
        handovers(ended.nodes, everything.ends, without=(CLAIMS, SECOND)),
        round(progress_s or 0.0, 1),
        dict(everything.havoc.made),
        sent=sum(each.sent for each in load.writers),
        resent=sum(each.resent for each in load.writers),
        unknown=sum(each.unknown for each in load.writers),
        errors=dict(errors),
        pause_s={each.name: round(each.pause(calm.began, calm.ended), 1) for each in clients},
        companions={name: value for each in everything.companions for name, value in each.figures().items()},
        complaints=tuple(complaints),
    )


def _load(plan: Plan, world: World) -> Load:
    writers = [
        Writer(
            f"w{number}",
            world.urls_from(number),
            LOG,
            plan.partitions,
            plan.rate,
            idempotent=number < plan.idempotent,
        )
        for number in range(plan.writers)
    ]
    readers = [
        Reader(f"r{number}-{partition}", world.urls_from(number + partition), LOG, partition)
        for number in range(plan.readers)
        for partition in range(plan.partitions)
    ]
    return Load(writers, readers)


def table(outcome: Outcome) -> str:
    """What a run showed, for people."""
    verdict, groups = outcome.verdict, outcome.groups
    disturbances = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.disturbances.items()))
    figures: dict[str, object] = {
        "events sent": outcome.sent,
        "accepted": verdict.accepted,
        "without a known outcome": outcome.unknown,
        "in the log": verdict.stored,
        "accepted events lost": verdict.lost,
        "accepted events reordered": verdict.reordered,
        "sent again": outcome.resent,
        "refused by Kafka before": verdict.refused,
        "copies in the log": verdict.doubled,
        "readers compared with Kafka": verdict.readers,
        "links granted": groups.grants,
        "deliveries in groups": groups.deliveries,
        "of these, again": groups.redelivered,
        "writes of two owners": groups.two_owners,
        "late writes, link closed": groups.late_closed,
        "received after a next owner": f"{groups.received_late}, at most {groups.latest_ms} ms",
        "settlements that did not count": groups.stale,
        "records of states": groups.states,
        "epochs or terms fallen": groups.epochs_fallen,
        "cursors ahead of settlements": groups.cursors_ahead,
        "cursors fallen": groups.cursors_fallen,
        "settled events that came again": groups.settled_again,
        "events that a group missed": groups.missed,
        "longest pause of a client, s": max(outcome.pause_s.values()),
        "all groups go on after, s": outcome.progress_s,
        **outcome.companions,
        **{f"nodes {how}": found.words() for how, found in outcome.handovers.items()},
        "disturbances": disturbances,
    }
    lines = [f"{name:32} {value}" for name, value in figures.items()]
    lines += [f"error of a client, {count} times: {text}" for text, count in sorted(outcome.errors.items())]
    lines += [f"VIOLATION {text}" for text in outcome.violations]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.brokers.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--handovers", type=int, default=5)
    parser.add_argument("--with", dest="companions", default="", help=f"of {', '.join(KINDS)}, with commas")
    parser.add_argument(
        "--idempotent",
        type=int,
        default=Plan().idempotent,
        help="how many of the 4 writers are idempotent producers (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    others = tuple(name for name in given.companions.split(",") if name)
    if unknown := set(others) - set(KINDS):
        parser.error(f"--with: {', '.join(sorted(unknown))} is not one of {', '.join(KINDS)}")
    plan = Plan(
        seconds=given.seconds,
        seed=given.seed,
        handovers=given.handovers,
        companions=others,
        idempotent=given.idempotent,
    )
    if others:
        # The machine has to carry them as well.
        plan = replace(plan, writers=2, idempotent=1, groups=1)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        outcome = asyncio.run(run(plan, folder))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        if any(folder.iterdir()):
            print(f"what the processes wrote is in {folder}", file=sys.stderr)
        else:
            folder.rmdir()
        return 1
    print(json.dumps(_plain(plan, outcome)) if given.json else table(outcome))
    if outcome.violations:
        print(f"what the processes wrote is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _plain(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    return {"plan": asdict(plan), **asdict(outcome), "violations": outcome.violations}


if __name__ == "__main__":
    sys.exit(main())
