"""Consumers of which a home decides, at their node: what is asked, and what follows the answers."""

from collections.abc import Mapping
from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.questions import Others
from amqp_streams.streams.attach import AttachRequest, Closed, Consuming, Denied, Granted, Leave, Pending
from amqp_streams.streams.consuming.reader import LATER, Run
from amqp_streams.streams.groups.claims import Claim, Wanted
from tests.amqp_streams.node.bench import EARLIEST, Bench, attach, member

ERROR = PeerError(names.LINK_STOLEN, "taken")


class Decider:
    """Records what it is asked."""

    def __init__(self) -> None:
        self.asked: dict[int, Wanted] = {}
        self.ended: list[int] = []
        self.positions: dict[int, Mapping[int, int]] = {}
        self.allows = True

    def attach(self, wanted: Wanted) -> int:
        self.asked[len(self.asked) + 1] = wanted
        return len(self.asked)

    def detach(self, number: int) -> None:
        self.ended.append(number)

    def moved(self, consumer: Consuming, number: int, positions: Mapping[int, int]) -> None:
        assert consumer.number == number
        self.positions[number] = positions

    def may_send(self, number: int) -> bool:
        return self.allows and number not in self.ended


class Homed(Bench):
    """A node with homes. All records are there before its links."""

    def __init__(self) -> None:
        super().__init__()
        self.decider = self.node.homed.decider = Decider()
        for partition in self.log.partitions:
            partition.append([b"a", b"b", b"c"], bytes(3), 0)
        self.store.commit()

    def wait(self, request: AttachRequest) -> Pending:
        pending = self.node.attach(request, self.now_ms)
        assert isinstance(pending, Pending)
        return pending

    def grant(
        self, request: AttachRequest, partition: int | None = None, positions: Mapping[int, int] | None = None
    ) -> Consuming:
        self.wait(request)
        self.node.homed.granted(len(self.decider.asked), 3, partition, positions or {}, self.now_ms)
        (granted,) = self.node.take_effects()
        assert isinstance(granted, Granted)
        return granted.grant


@pytest.fixture
def bench() -> Homed:
    return Homed()


def test_a_member_asks_for_its_group_with_the_starts_of_all_partitions(bench: Homed) -> None:
    bench.wait(member("g", container="c", link="l", filters=EARLIEST, durable=True, user="alice"))
    claim = Claim("g", None, None, "c")
    assert bench.decider.asked[1] == Wanted(
        bench.log.incarnation, "alice", "c", "l", claim, durable=True, starts=(0, 0), partitions=()
    )
    bench.wait(member("g", partition=1, container="c", link="other", durable=True))
    assert bench.decider.asked[2].starts == (0, 3), "only the partition that it can get"


def test_a_durable_link_asks_for_all_partitions_or_for_one(bench: Homed) -> None:
    bench.wait(attach(consumer=True, durable=True))
    assert list(bench.decider.asked[1].partitions) == [0, 1]
    assert bench.decider.asked[1].starts == (3, 3)
    assert bench.decider.asked[1].claim is None


def test_other_links_ask_nobody(bench: Homed) -> None:
    assert isinstance(bench.node.attach(attach(consumer=True), bench.now_ms), Consuming)
    assert not bench.decider.asked
    assert Bench().node.homed.offered is False


def test_a_granted_member_is_bound_has_its_epoch_and_begins_at_its_cursor(bench: Homed) -> None:
    consumer = bench.grant(member("g", durable=True), 1, {1: 2})
    assert (consumer.partitions, consumer.epoch, consumer.group) == ((bench.log.partitions[1],), 3, "g")
    run = bench.node.next_run(consumer, 10)
    assert isinstance(run, Run)
    assert (run.first, run.count) == (2, 1)


def test_a_member_without_a_cursor_begins_at_the_end_of_the_moment_of_its_grant(bench: Homed) -> None:
    bench.wait(member("g"))
    bench.log.partitions[0].append([b"d"], bytes(1), 0)
    bench.store.commit()
    bench.node.homed.granted(1, 0, 0, {}, bench.now_ms)
    (granted,) = bench.node.take_effects()
    assert isinstance(granted, Granted)
    assert bench.node.next_run(granted.grant, 10) is None


def test_nothing_is_sent_while_the_decider_does_not_allow_it(bench: Homed) -> None:
    consumer = bench.grant(member("g", durable=True), 0, {0: 0})
    bench.decider.allows = False
    assert bench.node.next_run(consumer, 10) is LATER
    assert bench.node.record(consumer, 0, 1) is LATER
    bench.decider.allows = True
    assert isinstance(bench.node.next_run(consumer, 10), Run)


def test_positions_go_to_the_decider_and_the_last_ones_before_the_end(bench: Homed) -> None:
    consumer = bench.grant(attach(consumer=True, durable=True), None, {0: 0, 1: 1})
    for _ in range(2):
        run = bench.node.next_run(consumer, 10)
        assert isinstance(run, Run)
        bench.node.settled(consumer, run.partition.index, run.first, run.count - 1)
    bench.node.flush_cursors(1)
    assert bench.decider.positions[1] == {0: 2, 1: 2}
    bench.node.settled(consumer, 0, 2)
    bench.node.detach(consumer, bench.now_ms)
    assert bench.decider.positions[1] == {0: 3, 1: 2}
    assert bench.decider.ended == [1]


@pytest.mark.parametrize("granted", [True, False])
def test_a_link_that_its_home_closes_ends_with_the_error(bench: Homed, granted: bool) -> None:
    link = bench.grant(member("g"), 0) if granted else bench.wait(member("g"))
    bench.node.homed.closed(1, ERROR, bench.now_ms)
    assert bench.node.take_effects() == [
        Closed(link, ERROR) if isinstance(link, Consuming) else Denied(link, ERROR)
    ]
    assert bench.decider.ended == [1]
    bench.node.homed.granted(1, 0, 0, {}, bench.now_ms)
    bench.node.homed.leave(1, ERROR, 10, bench.now_ms)
    assert not bench.node.take_effects(), "it has ended"


def test_a_link_that_must_leave_stops_and_one_that_waits_is_refused(bench: Homed) -> None:
    consumer = bench.grant(member("g"), 0)
    bench.node.homed.leave(1, ERROR, 500, bench.now_ms)
    assert bench.node.take_effects() == [Leave(consumer, ERROR, 500)]
    assert consumer.stopped
    pending = bench.wait(member("g"))
    bench.node.homed.leave(2, ERROR, 500, bench.now_ms)
    assert bench.node.take_effects() == [Denied(pending, ERROR)]


def test_an_attach_that_its_client_gives_up_is_given_up_at_its_home(bench: Homed) -> None:
    pending = bench.wait(member("g"))
    bench.node.detach(pending, bench.now_ms)
    assert bench.decider.ended == [1]


def test_a_deleted_log_ends_its_links_at_their_homes(bench: Homed) -> None:
    bench.grant(member("g"), 0)
    bench.wait(member("g"))
    bench.node.lost(bench.log, "gone", bench.now_ms)
    assert bench.decider.ended == [1, 2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"container": "", "durable": True}, "needs a container-id"),
        ({"container": "c" * 2000, "properties": {names.CONSUMER_GROUP: "g"}}, "at most 1024 characters"),
        ({"link": "l" * 2000, "properties": {names.CONSUMER_GROUP: "g"}}, "at most 1024 characters"),
    ],
)
def test_names_that_a_home_cannot_keep_are_refused(bench: Homed, given: dict[str, Any], words: str) -> None:
    with pytest.raises(PeerError, match=words):
        bench.node.attach(attach(consumer=True, **given), bench.now_ms)
    assert not bench.decider.asked


def test_a_cursor_behind_the_end_of_lost_records_is_refused(bench: Homed) -> None:
    others: Others[object, object] = Others()
    others.gone = lambda _partition, position: f"records before {position} were lost"
    bench.node.homed._others = others  # type: ignore[assignment]  # a store of this test has no others
    bench.wait(member("g", durable=True))
    bench.node.homed.granted(1, 0, 0, {0: 99}, bench.now_ms)
    (denied,) = bench.node.take_effects()
    assert isinstance(denied, Denied)
    assert denied.error.condition == names.RESOURCE_DELETED
    assert bench.decider.ended == [1]


def test_the_links_of_a_group_are_listed_with_their_partitions(bench: Homed) -> None:
    bench.grant(member("g", container="one"), 1)
    bench.wait(member("g", container="two"))
    bench.wait(member("h"))
    listed = [
        (incarnation, claim.group, claim.member, partition)
        for incarnation, claim, partition in bench.node.homed.links()
    ]
    log = bench.log.incarnation
    assert listed[:2] == [(log, "g", "one", 1), (log, "g", "two", None)]
    assert [each[1] for each in listed] == ["g", "g", "h"]
