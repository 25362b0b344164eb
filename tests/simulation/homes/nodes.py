"""One process of a node: performs the effects of its home and of its links, on a machine that may stop it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import PeerError
from amqp_streams.homes import bucket as homes
from amqp_streams.homes import reporting
from amqp_streams.homes.home import Home
from amqp_streams.homes.leases import Times
from amqp_streams.homes.membership import GivenBack, Leave
from amqp_streams.homes.messages import Answer, Positions, Report
from amqp_streams.homes.records import KEY, decoded
from amqp_streams.homes.reporting import Reporting
from amqp_streams.streams.consuming.tracker import Tracker
from amqp_streams.streams.groups.claims import Wanted
from tests.simulation.homes.kafka import Changes
from tests.simulation.homes.machines import Consumer, Link, Machine
from tests.simulation.homes.operators import Operating
from tests.simulation.stopping import StoppableProcess

if TYPE_CHECKING:
    from tests.simulation.homes.world import World

T = TypeVar("T")
TICK_MS = 50.0
FOLLOW_MS = 100.0
HEARTBEAT_MS = 300.0
REQUEST_MS = 5000.0
PUMP_MS = 120.0
SETTINGS = GroupSettings(wait_ms=4000, pause_ms=500, handover_ms=800)
LIMITS = Limits()
TIMES = Times()


class Process(StoppableProcess):
    """A node from start to end. `id`: no other process has it."""

    def __init__(self, world: "World", machine: Machine) -> None:
        super().__init__(world)
        machine.starts += 1
        machine.process = self
        self.world = world
        self.machine = machine
        self.name = machine.name
        self.id = f"{machine.name}.{machine.starts}"
        self.terminating = False
        self.stop_in_write = 0.0
        """For how long it will be stopped before its next write, or before it answers a grant."""
        self.links: dict[int, Link] = {}
        self.home = Home(self.id, machine.name, world.log_of, settings=SETTINGS, limits=LIMITS, times=TIMES)
        self.reporting = Reporting(self.id, TIMES)
        self.older = machine.name in world.older
        """Of an earlier version, which takes no questions of other nodes."""
        self.operating = Operating(self) if world.operates else None
        self._epochs: dict[tuple[int, int], int] = {}
        self._followed = [0] * len(world.kafka.partitions)
        self.do(self._join)
        for ms, act in ((TICK_MS, self._tick), (FOLLOW_MS, self._follow), (HEARTBEAT_MS, self._heartbeat)):
            self.every(ms, act)

    # -- the process on its machine

    def boot_ms(self) -> int:
        return self.machine.boot_ms(self.world.schedule.now)

    def kill(self) -> None:
        """SIGKILL, or the end of the process."""
        self.alive = False
        self.inbox.clear()
        for link in list(self.links.values()):
            self._lose(link, None)

    def terminate(self) -> None:
        """SIGTERM."""

        def begin() -> None:
            self.terminating = True
            for link in list(self.links.values()):
                self._lose(link, None)
            self.reporting.stop(self.boot_ms())
            self.home.stop(self.boot_ms())

        self.do(begin)
        self.world.schedule.after(4000, self.kill)

    def _exit(self) -> None:
        if self.reporting.busy:
            self.after(50, self._exit)
        else:
            self.kill()

    # -- timers

    def _tick(self) -> None:
        now_ms = self.boot_ms()
        self.home.tick(now_ms, int(self.world.schedule.now))
        self.reporting.tick(now_ms)
        if self.operating is not None:
            self.operating.tick()

    def _follow(self) -> None:
        world = self.world
        if world.kafka.away_until > world.schedule.now or world.network.is_cut("kafka", self.name):
            return
        for bucket, partition in enumerate(world.kafka.partitions):
            start, end = self._followed[bucket], partition.stable()
            self._followed[bucket] = end
            for changes in partition.read(start, end):
                value = changes.get(KEY)
                if value is not None:
                    record = decoded(value)
                    self.home.follow(bucket, record)
                    self.reporting.home(bucket, record, self.boot_ms())

    # -- the group

    def _join(self) -> None:
        def joined(result: bool | None) -> None:
            if result is None and self.alive and not self.terminating:
                self._join()

        def join() -> bool:
            # The connection of a process that has ended is gone.
            if self.alive:
                self.world.kafka.group.join(self.id)
            return True

        self.ask(join, joined)

    def _heartbeat(self) -> None:
        group = self.world.kafka.group
        if not self.terminating or self.home.buckets:
            # The coordinator hears nothing of a process whose connection is gone.
            self.ask(lambda: ("is", group.heartbeat(self.id) if self.alive else None), self._heard)

    def _heard(self, result: tuple[str, tuple[int, frozenset[int], frozenset[int]] | None] | None) -> None:
        if result is None:
            return
        if result[1] is None:
            self.home.lost(self.boot_ms())
            if not self.terminating:
                self._join()
            return
        generation, owned, revoking = result[1]
        if revoking:
            self.home.revoking(generation, revoking, self.boot_ms())
        else:
            self.home.assigned(generation, owned, self.boot_ms())

    # -- requests

    def ask(self, act: Callable[[], T], then: Callable[[T | None], object]) -> None:
        """Ask Kafka. None: no answer in time; the request may be carried out nevertheless."""
        network, answered = self.world.network, False

        def finish(result: T | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                then(result)

        def carry_out() -> None:
            result = act()
            network.send("kafka", self.name, lambda: self.do(lambda: finish(result)))

        network.send(self.name, "kafka", lambda: self.world.kafka.ask(carry_out))
        self.after(REQUEST_MS, lambda: finish(None))

    def _perform(self) -> None:
        while self.alive:
            effects = self.home.take_effects()
            orders = self.reporting.take_effects()
            if not effects and not orders:
                break
            for effect in effects:
                self._perform_home(effect)
            for order in orders:
                self._perform_link(order)

    def _perform_home(self, effect: object) -> None:
        if self.world.stories and not isinstance(effect, homes.Reply):
            self.world.tell(f"{self.id}: {effect}")
        match effect:
            case homes.Fence(bucket, attempt):
                self._fence(bucket, attempt)
            case homes.Load(bucket, attempt):
                self._load(bucket, attempt)
            case homes.Commit(bucket, attempt, changes):
                self._commit(bucket, attempt, changes)
            case homes.Reply(node, answer):
                self._reply(node, answer)
            case GivenBack(generation, buckets):
                group = self.world.kafka.group
                self.ask(lambda: group.given_back(self.id, generation, buckets), lambda _result: None)
            case Leave():
                self.ask(lambda: self.world.kafka.group.leave(self.id), lambda _result: self._exit())
            case _:
                raise AssertionError(effect)

    def _fence(self, bucket: int, attempt: int) -> None:
        def then(epoch: int | None) -> None:
            if epoch is None:
                self.home.failed(bucket, attempt, self.boot_ms())
            else:
                self._epochs[bucket, attempt] = epoch
                self.home.fenced(bucket, attempt, self.boot_ms())

        self.ask(partial(self.world.kafka.open_producer, bucket), then)

    def _load(self, bucket: int, attempt: int) -> None:
        partition = self.world.kafka.partitions[bucket]

        def then(end: int | None) -> None:
            if end is None:
                self.home.failed(bucket, attempt, self.boot_ms())
            elif partition.stable() < end:
                # A transaction below the end is not marked yet.
                self.after(10, lambda: then(end))
            else:
                values: dict[str, bytes] = {}
                for changes in partition.read(0, end):
                    for key, value in changes.items():
                        values.pop(key, None)
                        if value is not None:
                            values[key] = value
                self.home.loaded(bucket, attempt, values, self.boot_ms())

        self.ask(lambda: len(partition.log), then)

    def _commit(self, bucket: int, attempt: int, changes: Changes) -> None:
        kafka, epoch = self.world.kafka, self._epochs[bucket, attempt]

        def produced(result: tuple[homes.Outcome | None] | None) -> None:
            if result is None or result[0] is homes.Outcome.FENCED:
                ended(None if result is None else result[0])
            else:
                self.ask(partial(kafka.end, bucket, epoch, commits=result[0] is None), ended)

        def ended(outcome: homes.Outcome | None) -> None:
            self.home.ended(bucket, attempt, outcome or homes.Outcome.UNKNOWN, self.boot_ms())

        self.ask(lambda: (kafka.produce(bucket, epoch, changes),), produced)

    def _reply(self, node: str, answer: Answer) -> None:
        self.world.ledger.replied(node, answer)
        machine = self.world.machines[node.partition(".")[0]]

        def arrive() -> None:
            process = machine.process
            if process is not None and process.id == node:
                process.do(lambda: process.reporting.answer(answer, process.boot_ms()))

        self.world.network.send(self.name, machine.name, arrive, doubles=True)

    def _send(self, address: str, report: Report) -> None:
        machine = self.world.machines[address]

        def arrive() -> None:
            process = machine.process
            if process is not None:
                process.do(lambda: process.home.report(report, process.boot_ms()))

        self.world.network.send(self.name, address, arrive, doubles=True)

    # -- links

    def attach(self, peer: Consumer, wanted: Wanted) -> Link:
        """A client attaches."""
        link = Link(self, peer, wanted)

        def begin() -> None:
            if link.over or self.terminating:
                self._lose(link, None)
                return
            link.number = self.reporting.attach(wanted, self.world.bucket_of(wanted), self.boot_ms())
            self.links[link.number] = link
            self.world.ledger.numbered[self.id, link.number] = wanted

        self.do(begin)
        return link

    def detach(self, link: Link) -> None:
        """The client has left, or the node has closed the link."""

        def end() -> None:
            if not link.over:
                self._lose(link, None)
                self.reporting.detach(link.number, self.boot_ms())

        self.do(end)

    def settle(self, link: Link, partition: int, first: int, count: int) -> None:
        """The client settles deliveries."""

        def settled() -> None:
            if link.over:
                return
            tracker = link.trackers[partition]
            tracker.settled(first, count)
            self.world.ledger.settled(link, partition, first, count)
            self.reporting.moved(
                link.number, ((partition, tracker.position),), self.boot_ms(), urgent=link.peer.second
            )
            if link.leaving and not link.unsettled:
                self.detach(link)

        self.do(settled)

    def _perform_link(self, order: object) -> None:
        if self.world.stories and not isinstance(order, reporting.Send | reporting.Durable):
            self.world.tell(f"{self.id}: {order}")
        match order:
            case reporting.Send(address, report, _):
                self._send(address, report)
            case _:
                link = self.links.get(getattr(order, "number", 0))
                if link is not None:
                    self._perform_on(link, order)

    def _perform_on(self, link: Link, order: object) -> None:
        match order:
            case reporting.Granted(_, partition, epoch, positions):
                # It may be stopped between the answer of the home and the answer to the client.
                self._do(link.number % 2, lambda: self._granted(link, partition, epoch, positions))
            case reporting.Denied(_, error):
                self._lose(link, error)
            case reporting.Closed(_, error):
                self.world.ledger.closed(link)
                self._lose(link, error)
            case reporting.Leave(_, _, within_ms):
                self._leave(link, within_ms)
            case reporting.Durable(_, positions):
                self.world.ledger.confirmed(link, positions)
            case _:
                raise AssertionError(order)

    def _granted(self, link: Link, partition: int | None, epoch: int | None, positions: Positions) -> None:
        if not self.reporting.may_grant(link.number, self.boot_ms()):
            self.world.ledger.counts["stopped before a grant"] += 1
            self._perform()
            return
        link.granted, link.partition = True, partition
        starts = positions or ((partition or 0, link.wanted.starts[partition or 0]),)
        link.trackers = {index: Tracker(at) for index, at in starts}
        self.world.ledger.granted(link, epoch, starts)
        link.peer.attached(link)
        self._pump(link)

    def _leave(self, link: Link, within_ms: int) -> None:
        link.leaving = True
        if link.unsettled:
            self.after(within_ms, lambda: self.detach(link))
        else:
            self.after(0, lambda: self.detach(link))

    def _lose(self, link: Link, error: PeerError | None) -> None:
        if link.over:
            return
        link.over = True
        self.links.pop(link.number, None)
        refused = not link.granted and error is not None
        # The client hears of it a moment later.
        self.world.schedule.after(1.0, lambda: link.peer.lost(link, error, refused=refused))

    def _pump(self, link: Link) -> None:
        """Send, if the lease allows it, and look again later."""
        if link.over:
            return
        if self.reporting.may_send(link.number, self.boot_ms()):
            for index, tracker in link.trackers.items():
                if link.over or self.stopped:
                    break
                room = min(8 - tracker.unsettled, self.world.ends[index] - tracker.next)
                if room > 0:
                    self.world.ledger.checked(link, index)
                    self._write(
                        link, index, room if self.world.calm else min(room, self.world.random.randint(1, 3))
                    )
        self.after(PUMP_MS / 3 if self.world.duel else PUMP_MS, lambda: self._pump(link))

    def _write(self, link: Link, index: int, count: int) -> None:
        # The write is the first thing that follows the question, or a stop after it.
        self._do(1, lambda: self._written(link, index, count))

    def _do(self, stopped: int, act: Callable[[], None]) -> None:
        """Act, or stop first. `stopped`: 0 for never."""
        if stopped and self.stop_in_write:
            stop_ms, self.stop_in_write = self.stop_in_write, 0.0
            self.stop(stop_ms)
            self.inbox.append(act)
        else:
            act()

    def _written(self, link: Link, index: int, count: int) -> None:
        if link.over:
            return
        tracker = link.trackers[index]
        first = tracker.next
        tracker.sent(first, count)
        allowed = self.reporting.may_send(link.number, self.boot_ms())
        self.reporting.wrote(link.number, self.boot_ms())
        self._perform()
        self.world.ledger.sent(link, index, first, count, allowed=allowed)
        self.world.schedule.after(1.5, lambda: link.peer.received(link, index, first, count))
