"""Partitions are distributed evenly over members that join and leave, and then do not move.

Spec: Event Streams 4.5.1.
"""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams.config import GroupSettings
from amqp_streams.errors import PeerError
from amqp_streams.streams.groups.ownership import (
    Assigned,
    Change,
    Claim,
    GroupLink,
    GroupLinkState,
    Leaving,
    Ownership,
    Refused,
)
from tests.properties import examples

PAUSE = 600
STEP = 200


class Crowd:
    """Members that keep as many links as they want. A member attaches again when its link was closed or
    refused, as our client does.
    """

    def __init__(self, partitions: int, *, wait_ms: int, retry_ms: int = STEP) -> None:
        self.ownership = Ownership(partitions, GroupSettings(wait_ms=wait_ms, pause_ms=PAUSE))
        self.partitions = partitions
        self.retry_ms = retry_ms
        self.now_ms = 0
        self.wants: dict[str, int] = {}
        self.links: dict[GroupLink, None] = {}
        self.again: list[tuple[int, str]] = []
        self.leavings: list[int] = []

    def set_links(self, member: str, count: int) -> None:
        """This member wants this many links from now on."""
        self.wants[member] = count
        mine = [link for link in self.links if link.member == member]
        self.again = [(at, who) for at, who in self.again if who != member]
        for link in mine[count:]:
            self.lose(link)
        for _ in range(count - len(mine)):
            self.attach(member)

    def attach(self, member: str) -> None:
        try:
            link, changes = self.ownership.claim(Claim("g", None, None, member), self.now_ms)
        except PeerError:
            self.again.append((self.now_ms + self.retry_ms, member))
        else:
            self.links[link] = None
            self.follow(changes)

    def lose(self, link: GroupLink) -> None:
        del self.links[link]
        self.follow(self.ownership.release(link, self.now_ms))

    def follow(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case Leaving(link=link):
                    self.leavings.append(self.now_ms)
                    self.again.append((self.now_ms + STEP, link.member))
                case Refused(link=link):
                    del self.links[link]
                    self.again.append((self.now_ms + self.retry_ms, link.member))
                case Assigned():
                    pass
                case _:
                    raise AssertionError(change)

    def step(self) -> None:
        """Advance the time: members that were requested to leave have left, and returning members have
        attached.
        """
        self.now_ms += STEP
        for link in [link for link in self.links if link.state is GroupLinkState.LEAVING]:
            self.lose(link)
        due = [member for at, member in self.again if at <= self.now_ms]
        self.again = [(at, member) for at, member in self.again if at > self.now_ms]
        for member in due:
            self.attach(member)
        self.follow(self.ownership.tick(self.now_ms))

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // STEP):
            self.step()

    def loads(self) -> Counter[str]:
        owners = [link.member for link in self.links if link.owning]
        return Counter({member: owners.count(member) for member in self.wants})

    def assert_even(self) -> None:
        """Check that of two members that could own the same partitions, neither has two more than the other,
        and that every wanted partition has an owner.
        """
        loads = self.loads()
        assert sum(loads.values()) == min(self.partitions, sum(self.wants.values()))
        unsatisfied = [member for member, count in self.wants.items() if loads[member] < count]
        for member in unsatisfied:
            assert max(loads.values()) - loads[member] <= 1, loads


changes_of_mind = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 10), st.integers(0, 5 * PAUSE)), min_size=1, max_size=8
)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 9), changes_of_mind, st.sampled_from([0, 2 * STEP, 60_000]))
def test_the_spread_becomes_even_and_stays_so_after_any_joins_and_leaves(
    partitions: int, changes: list[tuple[str, int, int]], wait_ms: int
) -> None:
    """The test runs with waiting, with waits shorter than the pause, and without waiting."""
    crowd = Crowd(partitions, wait_ms=wait_ms)
    for member, count, then_ms in changes:
        crowd.set_links(member, count)
        crowd.pass_time(then_ms)
    crowd.pass_time((partitions + 3) * 3 * PAUSE)
    crowd.assert_even()
    moved = len(crowd.leavings)
    crowd.pass_time(20 * PAUSE)
    crowd.assert_even()
    assert len(crowd.leavings) == moved, "what is even stays where it is"


@settings(deadline=None)
@given(
    st.integers(2, 8),
    st.integers(1, 3),
    st.integers(1, 4),
    st.lists(st.sampled_from([0, STEP, 2 * STEP]), min_size=1, max_size=30),
)
def test_a_member_that_comes_and_goes_faster_than_the_pause_moves_nothing(
    partitions: int, stable: int, links: int, stays_ms: list[int]
) -> None:
    crowd = Crowd(partitions, wait_ms=60_000)
    for member in range(stable):
        crowd.set_links(f"stable-{member}", partitions)
        crowd.pass_time(20 * PAUSE)
    before, moved = crowd.loads(), len(crowd.leavings)
    for stay_ms in stays_ms:
        crowd.set_links("flapping", links)
        crowd.pass_time(stay_ms)
        crowd.set_links("flapping", 0)
        crowd.pass_time(STEP)
    assert len(crowd.leavings) == moved
    assert {member: load for member, load in crowd.loads().items() if load} == {
        member: load for member, load in before.items() if load
    }


def test_ten_members_over_eight_partitions_hold_one_each_and_two_stand_by() -> None:
    crowd = Crowd(8, wait_ms=60_000)
    for member in range(10):
        crowd.set_links(f"m{member}", 8)
    crowd.pass_time(20 * PAUSE)
    assert sorted(crowd.loads().values()) == [0, 0] + [1] * 8
    crowd.set_links("m0", 0)
    assert sum(crowd.loads().values()) == 8, "a stand-by takes over at once"


def test_a_member_that_joins_has_its_share_after_one_move() -> None:
    crowd = Crowd(9, wait_ms=60_000)
    for member in "ab":
        crowd.set_links(member, 9)
    crowd.pass_time(5 * PAUSE)
    crowd.leavings.clear()
    crowd.set_links("c", 9)
    crowd.pass_time(PAUSE + 2 * STEP)
    assert crowd.loads() == {"a": 3, "b": 3, "c": 3}
    assert len(crowd.leavings) == 3
