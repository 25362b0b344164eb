"""Members of groups: which member is granted which partitions and when, and how links are closed. Spec: Event
Streams 4.5; AMQP 2.6.1.
"""

import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.streams.attach import (
    Closed,
    Consuming,
    Denied,
    Granted,
    Leave,
    Pending,
    answered_properties,
)
from amqp_streams.streams.redirects import Redirects
from amqp_streams.wire.types import Symbol, ULong
from tests.amqp_streams.node.bench import EARLIEST, Bench, attach, elsewhere, member

WAITING = GroupSettings(wait_ms=30_000, pause_ms=3000, handover_ms=10_000)


@pytest.fixture
def bench() -> Bench:
    return Bench(groups=WAITING)


# -- 4.5: groups


def test_a_link_in_a_group_is_bound_and_learns_group_and_epoch(bench: Bench) -> None:
    """4.5: links in groups MUST be bound. 4.5.2: the epoch "is seeded with the value zero and is returned".
    4.6.3 defines its type.
    """
    consumer = bench.consume(member("g", partition=1))
    assert (consumer.bound, consumer.announce, consumer.partitions) == (
        True,
        False,
        (bench.log.partitions[1],),
    )
    answered = answered_properties(consumer)
    assert answered == {names.PARTITION: "1", names.CONSUMER_GROUP: "g", names.EPOCH: 0}
    assert isinstance(answered[Symbol(names.EPOCH)], ULong)
    assert type(answered[Symbol(names.CONSUMER_GROUP)]) is str


def test_links_without_a_group_learn_of_none(bench: Bench) -> None:
    """4.5: the node MUST NOT assign a consumer group on its own."""
    for consumer in (bench.consume(), bench.consume(properties={names.PARTITION: Symbol("1")})):
        assert answered_properties(consumer).keys() <= {names.PARTITION}


def test_an_epoch_without_a_group_is_kept_for_its_partition(bench: Bench) -> None:
    """4.6.3 makes the epoch relative to a group. All consumers without a group compete with each other."""
    first = bench.consume(member("", partition=0, epoch=3))
    assert answered_properties(first) == {names.PARTITION: "0", names.EPOCH: 3}
    assert bench.refusal(member("", partition=0, epoch=3)).condition == names.RESOURCE_LOCKED
    assert bench.consume(properties={names.PARTITION: Symbol("0")}), "without an epoch it competes with none"
    assert bench.refusal(member("", epoch=4)).condition == names.INVALID_FIELD


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({names.CONSUMER_GROUP: 7}, names.CONSUMER_GROUP),
        ({names.CONSUMER_GROUP: ""}, names.CONSUMER_GROUP),
        ({names.CONSUMER_GROUP: "g", names.EPOCH: "1"}, names.EPOCH),
        ({names.CONSUMER_GROUP: "g", names.EPOCH: True}, names.EPOCH),
        ({names.CONSUMER_GROUP: "g", names.EPOCH: -1}, names.EPOCH),
        ({names.CONSUMER_GROUP: "g", names.PARTITION: 1}, names.PARTITION),
    ],
)
def test_malformed_properties_are_refused_by_name(
    bench: Bench, properties: dict[str, object], named: str
) -> None:
    """4.6.1 to 4.6.3 define their types."""
    error = bench.refusal(attach(consumer=True, properties=properties))
    assert error.condition == names.INVALID_FIELD
    assert named in error.description


def test_a_group_may_have_to_be_configured() -> None:
    """4.5, 4.6.2: the node MAY require a configured item, and otherwise refuse the link."""
    bench = Bench(groups=GroupSettings(only=("team-*",)))
    assert bench.consume(member("team-a", partition=0))
    assert bench.refusal(member("other", partition=0)).condition == names.NOT_FOUND


# -- 4.5.1: the node assigns


def test_members_get_a_partition_each_and_the_next_one_waits(bench: Bench) -> None:
    """4.5.1, second scenario: "keep further incoming attach requests pending and complete those only once a
    partition becomes again available".
    """
    first, second = bench.consume(member(container="a")), bench.consume(member(container="b"))
    assert {each.partitions[0].index for each in (first, second)} == {0, 1}
    third = bench.attach(member(container="c"))
    assert isinstance(third, Pending)
    assert bench.node.take_effects() == []
    (granted,) = bench.detach(first)
    assert isinstance(granted, Granted)
    assert (granted.pending, granted.grant.partitions) == (third, first.partitions)
    assert set(bench.node.links_of("temps")) == {second, granted.grant}


def test_a_wait_has_an_end(bench: Bench) -> None:
    """4.5.1: attaches "might remain pending for a substantial time span, whose limits MAY be
    configurable".
    """
    bench.consume(member(partition=0))
    bench.consume(member(partition=1))
    waiting = bench.attach(member())
    assert bench.tick(29_999) == []
    (denied,) = bench.tick(1)
    assert isinstance(denied, Denied)
    assert (denied.pending, denied.error.condition) == (waiting, names.LINK_DETACH_FORCED)
    assert bench.tick(60_000) == []


def test_without_waiting_the_next_is_refused_at_once() -> None:
    """4.5.1, first scenario: "immediately rejected with a detach-forced error"."""
    bench = Bench(groups=GroupSettings(wait_ms=0))
    bench.consume(member())
    bench.consume(member())
    with pytest.raises(PeerError) as refused:
        bench.attach(member())
    assert refused.value.condition == names.LINK_DETACH_FORCED


def test_a_reader_that_gives_up_waiting_gets_nothing(bench: Bench) -> None:
    first = bench.consume(member(partition=0))
    bench.consume(member(partition=1))
    waiting = bench.attach(member())
    assert bench.detach(waiting) == []
    assert bench.detach(first) == []


def test_partitions_move_to_a_member_that_waits(bench: Bench) -> None:
    """4.5.1: to renegotiate, the node gracefully closes links: no more events are sent, and sent events may
    be settled.
    """
    links = [bench.consume(member(container="a", filters=EARLIEST)) for _ in range(2)]
    bench.append(0, 1)
    waiting = bench.attach(member(container="b"))
    assert bench.tick(2999) == []
    (leave,) = bench.tick(1)
    assert isinstance(leave, Leave)
    assert leave.grant in links
    assert (leave.error.condition, leave.within_ms) == (names.LINK_DETACH_FORCED, 10_000)
    assert leave.grant.stopped
    assert bench.read(leave.grant) == []
    (granted,) = bench.detach(leave.grant)
    assert isinstance(granted, Granted)
    assert (granted.pending, granted.grant.partitions) == (waiting, leave.grant.partitions)


# -- 4.5.2: consumers negotiate


def test_a_second_link_is_refused_unless_its_epoch_is_greater(bench: Bench) -> None:
    """4.5.2: "MUST be rejected UNLESS the newly attaching receiver provides an epoch counter greater than the
    current".
    """
    bench.consume(member(partition=0, epoch=5))
    for epoch in (None, 0, 4, 5):
        error = bench.refusal(member(partition=0, epoch=epoch))
        assert (error.condition, error.info[names.EPOCH]) == (names.RESOURCE_LOCKED, "5")
    assert bench.consume(member(partition=1))
    assert bench.consume(member("other", partition=0))


def test_a_greater_epoch_closes_the_old_link_and_is_recorded_before_the_new_one_is_granted(
    bench: Bench,
) -> None:
    """4.5.2: "any existing link … is closed by the node, the new link is attached, and the new epoch counter
    value is recorded".
    """
    old = bench.consume(member(partition=0, filters=EARLIEST))
    bench.append(0, 0)
    assert bench.read(old, 1) == [(0, 0)]
    new = bench.attach(member(partition=0, epoch=1, filters=EARLIEST))
    assert isinstance(new, Pending)
    (closed,) = bench.node.take_effects()
    assert isinstance(closed, Closed)
    assert (closed.grant, closed.error.condition) == (old, names.LINK_STOLEN)
    assert bench.read(old) == []
    assert bench.node.record(old, 0, 0) is None, "not even once more"
    assert bench.append(0) == set()
    (granted,) = bench.complete()
    assert isinstance(granted, Granted)
    assert (granted.pending, granted.grant.epoch) == (new, 1)
    assert bench.read(granted.grant) == [(0, 0), (0, 1), (0, 2)]
    assert bench.detach(old) == [], "the node has forgotten it"


def test_an_epoch_that_cannot_be_recorded_is_not_granted(bench: Bench) -> None:
    bench.attach(member(partition=0, epoch=7))
    (denied,) = bench.complete(StorageError("the disk is gone"))
    assert isinstance(denied, Denied)
    assert denied.error.condition == names.INTERNAL_ERROR
    assert bench.consume(member(partition=0)).epoch == 0, "the partition is free, and the epoch what it was"


def test_epochs_outlive_the_process_and_do_not_fall(bench: Bench) -> None:
    """4.5.2 permits a reset when no link remains. This node never resets epochs: otherwise an owner whose
    time ran out could become the owner again.
    """
    bench.detach(bench.consume(member(partition=0, epoch=9)))
    bench.attach(member(partition=1, epoch=9))
    bench.restart()
    assert bench.refusal(member(partition=0, epoch=8)).condition == names.RESOURCE_LOCKED
    assert bench.consume(member(partition=0)).epoch == 9
    assert bench.consume(member(partition=1)).epoch == 0, "a claim that was never answered leaves nothing"


def test_no_room_for_another_epoch_is_a_refusal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_changes: object) -> int:
        message = "too many keys"
        raise ValueError(message)

    monkeypatch.setattr(bench.store.states, "write", full)
    with pytest.raises(PeerError) as refused:
        bench.attach(member(partition=0, epoch=1))
    assert refused.value.condition == names.INTERNAL_ERROR


def test_a_member_that_leaves_while_its_epoch_is_recorded_gets_nothing(bench: Bench) -> None:
    waiting = bench.attach(member(partition=0, epoch=1))
    assert bench.detach(waiting) == []
    assert bench.complete() == []
    assert bench.consume(member(partition=0)).epoch == 1, "it may have been seen on the disk"


# -- AMQP 2.6.1: one link, attached again


def test_a_link_attached_again_elsewhere_is_stolen(bench: Bench) -> None:
    """2.6.1: a link's name is unique between two containers. Of two endpoints of one link, the older one is
    detached with link:stolen.
    """
    for again in (
        attach(consumer=True, link="l", container="c"),
        attach(link="l", container="c"),
        member(partition=0, link="g", container="c"),
    ):
        old = bench.attach(again)
        new = bench.attach(again)
        (closed,) = bench.node.take_effects()
        assert isinstance(closed, Closed)
        assert (closed.grant, closed.error.condition) == (old, names.LINK_STOLEN)
        assert old not in bench.node.links_of("temps")
        assert new in bench.node.links_of("temps")


def test_a_waiting_attach_is_stolen_as_well(bench: Bench) -> None:
    bench.consume(member(partition=0))
    bench.consume(member(partition=1))
    again = member(link="l", container="c")
    old, new = bench.attach(again), bench.attach(again)
    (denied,) = bench.node.take_effects()
    assert isinstance(denied, Denied)
    assert (denied.pending, denied.error.condition) == (old, names.LINK_STOLEN)
    assert isinstance(new, Pending)


@pytest.mark.parametrize(
    "other",
    [
        attach(consumer=True, link="l", container="c", user="ann"),
        attach(consumer=True, link="l", container="d"),
        attach(consumer=True, link="m", container="c"),
        attach(link="l", container="c"),
    ],
)
def test_another_users_containers_or_roles_link_of_that_name_is_another_link(
    bench: Bench, other: object
) -> None:
    first = bench.attach(attach(consumer=True, link="l", container="c"))
    bench.attach(other)  # type: ignore[arg-type]
    assert bench.node.take_effects() == []
    assert first in bench.node.links_of("temps")


def test_links_without_a_container_or_a_name_are_never_the_same(bench: Bench) -> None:
    for nameless in (
        attach(consumer=True, link="l", container=""),
        attach(consumer=True, link="", container="c"),
    ):
        bench.attach(nameless)
        bench.attach(nameless)
    assert bench.node.take_effects() == []


def test_an_attach_that_is_refused_steals_nothing(bench: Bench) -> None:
    old = bench.attach(attach(consumer=True, link="l", container="c"))
    for wrong in (
        {"filters": {names.FILTER_SQL: "no sense ("}},
        {"properties": {names.PARTITION: Symbol("9")}},
    ):
        bench.refusal(attach(consumer=True, link="l", container="c", **wrong))
    assert bench.node.take_effects() == []
    assert old in bench.node.links_of("temps")


# -- logs that go


def test_a_deleted_log_takes_its_links_waits_and_epochs_with_it(bench: Bench) -> None:
    granted = [
        bench.consume(member(partition=0, epoch=4)),
        bench.consume(member(partition=1)),
        bench.attach(attach()),
    ]
    granted.append(bench.attach(attach("temps/$info", consumer=True)))
    waiting = bench.attach(member())
    recording = bench.attach(member("other", partition=0, epoch=1))
    assert bench.manage("DELETE", "temps")[0] == 204
    effects = bench.node.take_effects()
    assert {each.grant for each in effects if isinstance(each, Closed)} == set(granted)
    assert {each.pending for each in effects if isinstance(each, Denied)} == {waiting, recording}
    assert {each.error.condition for each in effects if isinstance(each, Closed | Denied)} == {
        names.RESOURCE_DELETED
    }
    assert bench.node.links_of("temps") == ()
    assert bench.complete() == []
    assert bench.store.states.items("") == []
    for link in (*granted, waiting, recording):
        assert bench.detach(link) == []
    bench.log = bench.node.create("temps", LogSettings(partitions=2))
    assert bench.consume(member(partition=0)).epoch == 0, "a namesake begins anew"


def test_groups_and_waiting_members_are_limited() -> None:
    bench = Bench(partitions=1, limits=Limits(groups=1, group_waiting=1))
    bench.consume(member("g"))
    assert bench.refusal(member("h")).condition == names.RESOURCE_LIMIT_EXCEEDED
    bench.attach(member("g"))
    assert bench.refusal(member("g")).condition == names.RESOURCE_LIMIT_EXCEEDED


# -- a bound on links times partitions


def link_partitions(bench: Bench) -> tuple[int, int]:
    return bench.node.uses()["link_partitions"]


def test_links_times_partitions_have_a_bound_of_the_node() -> None:
    bench = Bench(limits=Limits(link_partitions=5))
    first, second = bench.consume(), bench.consume(link="second", container="b")
    assert link_partitions(bench) == (4, 5)
    refusal = bench.refusal(attach(consumer=True, container="c"))
    assert refusal.condition == names.RESOURCE_LIMIT_EXCEEDED
    assert "4 partitions" in refusal.description
    assert "'link_partitions' (5)" in refusal.description
    bound = bench.consume(container="c", properties={names.PARTITION: Symbol("1")})
    assert bench.refusal(member("g", partition=0)).condition == names.RESOURCE_LIMIT_EXCEEDED
    assert link_partitions(bench) == (5, 5)
    again = bench.consume(link="second", container="b")
    assert again is not second, "a link that takes its own cursor needs no more room"
    for link in (first, bound, again):
        bench.detach(link)
    assert link_partitions(bench) == (0, 5)


def test_members_that_wait_count_and_no_end_counts_twice(bench: Bench) -> None:
    first, second = bench.consume(member(container="a")), bench.consume(member(container="b"))
    third = bench.attach(member(container="c"))
    assert link_partitions(bench)[0] == 3
    bench.detach(first)
    assert link_partitions(bench)[0] == 2
    assert bench.refusal(member("", epoch=4)).condition == names.INVALID_FIELD
    for link in (first, second, third):
        bench.detach(link)
    bench.node.detach(second, 0)
    assert link_partitions(bench)[0] <= 1
    for consumer in list(bench.node.links_of("temps")):
        bench.node.detach(consumer, 0)
    assert link_partitions(bench)[0] == 0


def test_partitions_that_go_elsewhere_do_not_count(bench: Bench) -> None:
    consumer = bench.consume()
    bench.node.redirects = elsewhere(1)
    bench.node.reassociate()
    assert link_partitions(bench)[0] == 1
    bench.node.redirects = Redirects()
    bench.node.reassociate()
    assert link_partitions(bench)[0] == 2
    bench.detach(consumer)
    assert link_partitions(bench)[0] == 0


def test_the_default_is_enough_for_a_thousand_links_on_the_largest_log() -> None:
    assert Limits().link_partitions >= 1000 * 1024


def test_only_consumers_are_counted_as_consumers(bench: Bench) -> None:
    consumer, waiting = bench.consume(member(partition=0)), bench.attach(member(partition=0, epoch=1))
    bench.attach(attach())
    assert isinstance(consumer, Consuming)
    assert isinstance(waiting, Pending)
    assert list(bench.node.consumers()) == []
    bench.complete()
    assert len(list(bench.node.consumers())) == 1


def test_a_thousand_waiting_attaches_that_are_refused_one_after_the_other_are_all_answered() -> None:
    """Each attach gets the partition of the one before it, which could not keep a position there. The
    attaches are not answered by recursion.
    """
    bench = Bench(partitions=1, groups=WAITING, limits=Limits(cursors=1))
    bench.consume(attach(consumer=True, durable=True))
    owner = bench.consume(member())
    waiting = [bench.attach(member(durable=True)) for _ in range(1000)]
    effects = bench.detach(owner)
    denied = [(each.pending, each.error.condition) for each in effects if isinstance(each, Denied)]
    assert denied == [(each, names.RESOURCE_LIMIT_EXCEEDED) for each in waiting]
    assert bench.consume(member()), "the partition is free"
