"""A node with consumer groups and cursors that crashes, compared with a model of its peers and its disk.

Invariants for any order of attaches, ends, steals, deliveries, settlements, writes and their failures,
rebalances and crashes: a partition has one owner in a group. Epochs never decrease. A former owner gets
nothing once a new owner exists. A cursor does not pass an unsettled event, and goes back no further than the
disk or a reset requires.

Spec: Event Streams 3.2, 4.5; AMQP 2.6.1.
"""

from itertools import count
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqp_streams import names
from amqp_streams.config import GroupSettings, LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import Node
from amqp_streams.storage.ports import CommitDone
from amqp_streams.streams.attach import (
    AttachRequest,
    Closed,
    Consuming,
    Denied,
    Grant,
    Granted,
    Leave,
    Pending,
)
from amqp_streams.streams.consuming.cursors import Cursor, CursorKey, group_key, link_key
from amqp_streams.streams.consuming.reader import Run
from amqp_streams.streams.management import Request
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.types import Symbol, ULong, Value
from tests.amqp_streams.node.peer_links import Link
from tests.properties import examples

NOW = 1_700_000_000_000
PAUSE, WAIT = 3000, 10_000
EARLIEST: dict[str, Value] = {
    names.FILTER_DELIVERY_ANNOTATIONS: {names.OFFSET: Symbol(names.OFFSET_EARLIEST)}
}
REFUSALS = {names.RESOURCE_LOCKED, names.LINK_DETACH_FORCED, names.INTERNAL_ERROR, names.LINK_STOLEN}

Spot = tuple[CursorKey, int]


class Crashing(RuleBasedStateMachine):
    """One log, whose events survive crashes. The states of its node survive as far as their writes have
    ended.
    """

    @initialize(partitions=st.integers(1, 3), wait_ms=st.sampled_from([0, WAIT, WAIT]))
    def begin(self, partitions: int, wait_ms: int) -> None:
        self.settings = GroupSettings(wait_ms=wait_ms, pause_ms=PAUSE)
        self.now_ms = 0
        self.store = MemoryStore()
        self.log = self.store.create("log", LogSettings(partitions=partitions), incarnation="i")
        self.connections = count(1)
        self.told: dict[tuple[str, int], int] = {}
        """The last epoch that was reported to a peer."""
        self.settled: dict[Spot, set[int]] = {}
        """For each cursor that was reported to a peer: the settled events, from 0 on, including those before
        its start.
        """
        self.floor: dict[Spot, int] = {}
        """Where the disk has each cursor at least, and, in `rising`, where it will have it when the writes
        end.
        """
        self.rising: dict[Spot, int] = {}
        self.slow = False
        self.start()
        self.append(5)

    def start(self) -> None:
        self.links: list[Link] = []
        self.owners: dict[tuple[str, int], Link] = {}
        self.node = Node(self.store, sync="always", new_id=lambda: "x", groups=self.settings)
        self.store.states.on_written = self.node.state_written
        self.store.on_commit = self.committed
        self.crashed: set[Spot] = set(self.settled)
        """The cursors whose state after the crash is not known."""
        self.rising.clear()

    # -- what peers do

    containers = st.sampled_from("ab")
    numbers = st.integers(0, 5)

    @rule(
        container=containers,
        link=numbers,
        group=st.sampled_from(["g", "g", "g", "h"]),
        durable=st.sampled_from([True, True, True, False]),
    )
    def attach_to_a_group(self, container: str, link: int, group: str, durable: bool) -> None:
        self.attach(container, link, {names.CONSUMER_GROUP: group}, durable=durable)

    @rule(container=containers, durable=st.booleans())
    def attach_to_a_group_often(self, container: str, durable: bool) -> None:
        """As many links as there are partitions, as a member alone has them."""
        if any(link.request.container == container for link in self.links):
            return
        for link in range(len(self.log.partitions)):
            self.attach(container, link + 10, {names.CONSUMER_GROUP: "g"}, durable=durable)

    @rule(
        data=st.data(),
        container=containers,
        link=numbers,
        group=st.sampled_from(["g", "g", "g", "h", None]),
        epoch=st.none() | st.integers(0, 6),
    )
    def attach_to_a_partition(
        self, data: st.DataObject, container: str, link: int, group: str | None, epoch: int | None
    ) -> None:
        index = data.draw(st.integers(0, len(self.log.partitions) - 1))
        properties: dict[str, Value] = {names.PARTITION: Symbol(str(index))}
        if group is not None:
            properties[names.CONSUMER_GROUP] = group
        if epoch is not None:
            properties[names.EPOCH] = ULong(epoch)
        self.attach(container, link, properties, durable=True)

    @rule(container=containers, link=numbers, earliest=st.booleans())
    def attach_to_all_partitions(self, container: str, link: int, earliest: bool) -> None:
        self.attach(container, link, {}, durable=True, earliest=earliest)

    @precondition(lambda self: self.links)
    @rule(data=st.data(), closed=st.booleans())
    def end(self, data: st.DataObject, closed: bool) -> None:
        """A link detaches or is lost; it may have been closed from here before."""
        link = data.draw(st.sampled_from(self.links))
        self.ended(link)
        self.links.remove(link)
        self.node.detach(link.answer, self.now_ms, closed=closed)
        self.follow()
        self.write_promptly()

    @precondition(lambda self: self.links)
    @rule(most=st.integers(1, 6))
    def deliver(self, most: int) -> None:
        for link in self.links:
            if link.grant is not None:
                self.deliver_to(link, link.grant, most)

    def deliver_to(self, link: Link, grant: Consuming, most: int) -> None:
        run = self.node.next_run(grant, most, NOW)
        if run is None:
            return
        assert link.alive, "a link that was closed gets nothing more"
        assert not link.leaving, "a link that was asked to leave gets nothing more"
        assert isinstance(run, Run), "nothing is filtered here"
        index = run.partition.index
        if grant.group is not None:
            assert self.owners[grant.group, index] is link
        assert run.first == link.next[index], "nothing is skipped, and nothing comes twice on one link"
        link.next[index] += run.count
        link.unsettled.update(
            dict.fromkeys((index, number) for number in range(run.first, run.first + run.count))
        )

    @precondition(lambda self: any(link.unsettled for link in self.links))
    @rule(data=st.data(), all_=st.booleans())
    def settle(self, data: st.DataObject, all_: bool) -> None:
        """Settle events in any order, also on links that are already closed; those settlements are
        too late.
        """
        link = data.draw(st.sampled_from([link for link in self.links if link.unsettled]))
        done = list(link.unsettled) if all_ else [data.draw(st.sampled_from(list(link.unsettled)))]
        for index, number in done:
            assert link.grant is not None
            del link.unsettled[index, number]
            self.node.settled(link.grant, index, number)
            if link.alive and link.request.durable:
                self.settled[key_of(link), index].add(number)

    # -- what people do

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        """A cursor goes back to the earliest event, unless a link moves it."""
        key, index = data.draw(st.sampled_from(sorted(self.settled, key=str)))
        done = self.manage(
            "UPDATE", names.CURSOR_TYPE, key.id, {"partition": str(index), "position": names.OFFSET_EARLIEST}
        )
        if done:
            self.settled[key, index] = set()
            self.floor[key, index] = 0
            self.rising.pop((key, index), None)
            self.crashed.discard((key, index))
        else:
            assert any(
                link.alive and link.grant and link.request.durable and key_of(link) == key
                for link in self.links
            )
        self.follow()

    @rule(group=st.sampled_from("gh"))
    def remove_group(self, group: str) -> None:
        """Remove a group with its epochs and its cursor, unless the group has links."""
        used = any(
            link.alive and link.request.properties.get(names.CONSUMER_GROUP) == group for link in self.links
        )
        done = self.manage("DELETE", names.GROUP_TYPE, group, {})
        assert not (used and done)
        if done:
            self.told = {owned: epoch for owned, epoch in self.told.items() if owned[0] != group}
            gone = [spot for spot in self.settled if spot[0].group == group]
            for spot in gone:
                del self.settled[spot], self.floor[spot]
                self.rising.pop(spot, None)
                self.crashed.discard(spot)
        self.follow()

    def manage(self, operation: str, type_: str, name: str, body: dict[Value, Value]) -> bool:
        """Whether it was done. If so, it is on the disk. Call `follow` after the model has noted it."""
        answer = self.node.manage(Request(operation, type_, name, body, "me", 1, log="log"))
        assert answer.status in {200, 204, 404, 409}, answer
        if self.store.states.waiting:
            self.store.states.complete()
            self.floor.update(self.rising)
            self.rising.clear()
        return answer.status < 300

    # -- what time, disk and fate do

    @rule(events=st.integers(1, 5))
    def append(self, events: int) -> None:
        for partition in self.log.partitions:
            partition.append([b"\x00\x53\x75\xa0\x01x"] * events, bytes(events), NOW)
        self.store.commit()

    def committed(self, done: CommitDone) -> None:
        self.node.committed(done, self.log.partitions)

    @rule(ms=st.sampled_from([1, PAUSE, PAUSE, WAIT]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.node.tick(self.now_ms)
        self.follow()
        self.write_promptly()

    @rule()
    def flush(self) -> None:
        self.node.flush_cursors(NOW)
        for spot in self.settled.keys() - self.crashed:
            self.rising[spot] = self.position(spot)
        self.write_promptly()

    @rule(slow=st.booleans())
    def change_the_disk(self, slow: bool) -> None:
        """Writes end at once, or when `end_writes` is called."""
        self.slow = slow

    def write_promptly(self) -> None:
        while not self.slow and self.store.states.waiting:
            self.end_writes(False)

    @precondition(lambda self: self.store.states.waiting)
    @rule(fails=st.booleans())
    def end_writes(self, fails: bool) -> None:
        """End the writes. Writes that failed are still visible, and are repeated with the next write."""
        if fails and self.store.states.waiting:
            self.store.states.fail(StorageError("no"))
        elif self.store.states.waiting:
            self.floor.update(self.rising)
            self.rising.clear()
        self.store.states.complete()
        self.follow()

    @rule(really=st.sampled_from([True, False, False]))
    def crash(self, really: bool) -> None:
        if not really:
            return
        # The process after the crash reopens them.
        self.store.states = self.store.states.survivors()  # type: ignore[misc]
        self.start()

    # -- what follows

    def attach(
        self, container: str, link: int, properties: dict[str, Value], *, durable: bool, earliest: bool = True
    ) -> None:
        request = AttachRequest(
            f"link-{link}",
            container,
            consumer=True,
            address="log",
            durable=durable,
            connection=next(self.connections),
            properties=properties,
            filters=EARLIEST if earliest else {},
        )
        active = self.active_rival(request)
        told = 0 if active is None else self.told[active]
        answer = self.answer(request)
        self.follow()
        if isinstance(answer, Consuming | Pending):
            asked = request.properties.get(names.EPOCH, 0)
            assert active is None or (isinstance(asked, int) and asked > told), (
                "a link yields to greater epochs only"
            )
            self.links.append(Link(request, answer))
            if isinstance(answer, Consuming):
                self.granted(self.links[-1])
        else:
            assert isinstance(answer, PeerError)
            assert answer.condition in REFUSALS, answer
        self.write_promptly()

    def active_rival(self, request: AttachRequest) -> tuple[str, int] | None:
        """Return the requested partition if it has another owner that is not the same link on another
        connection.
        """
        group, index = (
            request.properties.get(names.CONSUMER_GROUP, ""),
            request.properties.get(names.PARTITION),
        )
        owned = str(group), -1 if index is None else int(str(index))
        owner = self.owners.get(owned)
        same = owner is None or (owner.request.container, owner.request.link) == (
            request.container,
            request.link,
        )
        claims = names.CONSUMER_GROUP in request.properties or names.EPOCH in request.properties
        return None if same or not claims else owned

    def answer(self, request: AttachRequest) -> Grant | Pending | PeerError:
        try:
            return self.node.attach(request, self.now_ms)
        except PeerError as error:
            return error

    def follow(self) -> None:
        """Carry out the effects of the node, in order, as its shell would."""
        for effect in self.node.take_effects():
            match effect:
                case Granted(pending, grant):
                    link = self.known(pending)
                    link.answer = grant
                    self.granted(link)
                case Denied(pending, error):
                    assert error.condition in REFUSALS
                    self.links.remove(self.known(pending))
                case Closed(grant, error):
                    assert error.condition in {names.LINK_STOLEN, names.LINK_DETACH_FORCED}
                    assert isinstance(grant, Consuming)
                    self.ended(self.known(grant))
                case Leave(grant):
                    link = self.known(grant)
                    assert link.alive
                    link.leaving = True

    def known(self, answer: Consuming | Pending) -> Link:
        (link,) = [link for link in self.links if link.answer is answer]
        return link

    def granted(self, link: Link) -> None:
        grant = link.grant
        assert grant is not None
        link.next = dict(grant.reader.positions)
        if grant.group is not None:
            (partition,) = grant.partitions
            owned = grant.group, partition.index
            assert owned not in self.owners, "one owner"
            self.owners[owned] = link
            asked = link.request.properties.get(names.EPOCH, 0)
            assert isinstance(asked, int)
            assert grant.epoch is not None
            assert grant.epoch >= max(asked, self.told.get(owned, 0)), "epochs never fall"
            self.told[owned] = grant.epoch
        if link.request.durable:
            for index, position in link.next.items():
                self.resumed((key_of(link), index), position)

    def resumed(self, spot: Spot, position: int) -> None:
        """A peer is given this cursor, from this position on."""
        if spot not in self.settled:
            self.settled[spot] = set(range(position))
            self.floor[spot] = position
        elif spot in self.crashed:
            assert self.floor[spot] <= position <= self.position(spot), (
                "what was settled and written is not repeated; nothing is skipped"
            )
            self.settled[spot] = set(range(position))
            self.crashed.discard(spot)
        else:
            assert position == self.position(spot), "nothing is repeated that was settled, nothing is skipped"

    def ended(self, link: Link) -> None:
        """The link has ended, and settlements after an unsettled record are forgotten."""
        if not link.alive or link.grant is None:
            return
        link.alive = False
        self.owners = {owned: owner for owned, owner in self.owners.items() if owner is not link}
        if link.request.durable:
            for index in link.next:
                spot = key_of(link), index
                self.rising[spot] = self.position(spot)
                self.settled[spot] = set(range(self.rising[spot]))

    def position(self, spot: Spot) -> int:
        """The lowest record that is not settled."""
        return next(number for number in count() if number not in self.settled[spot])

    # -- what always holds

    @invariant()
    def cursors_are_at_the_lowest_unsettled_record(self) -> None:
        kept = self.node._consumers.cursors
        cursors: dict[CursorKey, Cursor] = {
            cursor.key: kept.present(cursor) for cursor in kept.of_log(self.log)
        }
        for spot in self.settled:
            key, index = spot
            position = cursors[key].positions[index]
            if spot in self.crashed:
                assert self.floor[spot] <= position <= self.position(spot)
            else:
                assert position == self.position(spot)

    @invariant()
    def owners_are_those_that_were_told_so(self) -> None:
        ownership = self.node._consumers.groups.of(self.log)
        for (group, index), link in self.owners.items():
            hold = ownership.owner(group, index)
            assert hold is not None
            assert hold.member == link.request.member

    @invariant()
    def readers_are_counted_as_a_walk_finds_them(self) -> None:
        listed = self.node.manage(Request("QUERY", names.GROUP_TYPE, "", {}, None, None, log="log"))
        extents = self.node.manage(Request(names.EXTENTS, names.LOG_TYPE, "log", {}, None, None))
        found = cast("Any", extents.body)[names.EXTENT_LOGS][0]
        assert found[names.EXTENT_GROUPS] == len(cast("Any", listed.body)["groups"])
        assert found[names.EXTENT_CONSUMERS] == sum(1 for _ in self.node.consumers())


def key_of(link: Link) -> CursorKey:
    group = link.request.properties.get(names.CONSUMER_GROUP)
    return group_key("i", str(group)) if group else link_key("i", link.request.container, link.request.link)


Crashing.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
TestCrashing = Crashing.TestCase
