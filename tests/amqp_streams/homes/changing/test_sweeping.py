"""States of logs that are gone: when they are removed, and when they are not."""

from collections.abc import Mapping

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.changing.sweeping import (
    INCARNATION_CHARACTERS,
    LOOKED_A_STEP,
    REMOVED_A_STEP,
    UNKNOWN_MAX,
    Sweeping,
    incarnation_in,
)
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Reported
from amqp_streams.homes.serving import Serving
from amqp_streams.homes.states import BucketStates
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.cursors import Cursor, encoded, group_key
from amqp_streams.streams.groups.claims import Claim, Wanted
from amqp_streams.streams.groups.epochs import epoch_change
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.homes.stage import LIMITS, SETTINGS

TIMES = Times()
# Ids of topics may contain what looks like a partition.
GONE, LEFT = "SEf5JnpfQK/7/h50iHOMwA", "AEf5JnpfQKaHB+h50iHOMw"
BUCKET = 3


def kept(incarnation: str, groups: int = 1) -> dict[str, bytes]:
    """What groups with a cursor, an epoch and an owner have in the topic."""
    found: dict[str, bytes] = {}
    for number in range(groups):
        key = group_key(incarnation, f"g/{number}")
        found[key.state] = encoded(Cursor(key, "user", {0: 5}, 7))
        found |= epoch_change(incarnation, f"g/{number}", 0, 3)
        found[f"owner/{incarnation}/0/g/{number}"] = b"{}"
    return found


class Home:
    """The home of one bucket, and a clock."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        store = MemoryStore()
        self.logs = {LEFT: store.create("left", LogSettings(partitions=1), incarnation=LEFT)}
        self.states = BucketStates(dict(values))
        self.serving: Serving = self.open()
        self.here: Serving | None = self.serving
        self.now_ms = 0
        self.sweeping = Sweeping(self, self.log_of, TIMES)
        self.steps = 0

    def open(self) -> Serving:
        return Serving(self.states, 1, self.log_of, settings=SETTINGS, limits=LIMITS, times=TIMES)

    def log_of(self, incarnation: str) -> StoredLog | None:
        return self.logs.get(incarnation)

    def states_of(self, bucket: int) -> Mapping[str, bytes]:
        return self.states.values

    def deciding(self, bucket: int) -> Serving | None:
        return self.here if bucket == BUCKET else None

    def pass_ms(self, ms: int) -> bool:
        """Whether all topics must be described, after all steps of this time."""
        self.now_ms += ms
        asked = False
        for _ in range(20 * BUCKETS + len(self.states.values)):
            self.steps += 1
            asked = self.sweeping.tick(self.now_ms) or asked
        return asked

    def sweep(self, *ids: str, answers: bool = True) -> bool:
        """One round. Returns whether the topics were described."""
        asked = self.pass_ms(TIMES.sweep_ms)
        if asked:
            self.sweeping.described(ids if answers else None, self.now_ms)
            self.pass_ms(0)
        return asked

    @property
    def incarnations(self) -> set[str | None]:
        return {incarnation_in(key) for key in self.states.values} - {None}


def home(groups: int = 1) -> Home:
    made = Home({"home": b"{}", **kept(GONE, groups), **kept(LEFT, groups)})
    made.pass_ms(0)
    return made


ROUNDS = TIMES.gone_ms // TIMES.sweep_ms


def test_the_states_of_a_log_are_removed_when_it_is_gone_for_long_enough() -> None:
    one = home()
    for _ in range(ROUNDS):
        assert one.sweep(LEFT)
        assert one.incarnations == {GONE, LEFT}
    assert one.sweep(LEFT)
    assert one.incarnations == {LEFT}
    assert "home" in one.states.values
    assert one.sweeping.removed == 3
    # The topic gets records without values.
    changes = one.states.take()
    assert sorted(changes) == sorted(kept(GONE))
    assert set(changes.values()) == {None}
    assert not one.serving.groups.counts.of(GONE)
    assert one.serving.groups.counts.of(LEFT) == 1
    assert not one.sweep(LEFT), "nothing is unknown: the topics are not described"


@pytest.mark.parametrize("shown", range(ROUNDS))
def test_one_description_that_has_the_log_begins_the_time_anew(shown: int) -> None:
    one = home()
    for number in range(ROUNDS + 1):
        one.sweep(*((GONE, LEFT) if number == shown else (LEFT,)))
    assert one.incarnations == {GONE, LEFT}
    for _ in range(ROUNDS):
        one.sweep(LEFT)
    assert one.incarnations == {LEFT}


def test_a_cluster_that_does_not_answer_or_has_no_topic_removes_nothing() -> None:
    one = home()
    for number in range(5 * ROUNDS):
        one.sweep(LEFT, answers=bool(number % 2)) if number % 3 else one.sweep()
        if number < ROUNDS:
            assert one.incarnations == {GONE, LEFT}
    two = home()
    for _ in range(5 * ROUNDS):
        two.sweep(answers=False)
        two.sweep()
    assert two.incarnations == {GONE, LEFT}


def test_a_log_that_this_node_learns_of_meanwhile_keeps_its_states() -> None:
    one = home()
    for _ in range(ROUNDS):
        one.sweep(LEFT)
    one.pass_ms(TIMES.sweep_ms)
    one.sweeping.described([LEFT], one.now_ms)
    one.logs[GONE] = MemoryStore().create("back", LogSettings(partitions=1), incarnation=GONE)
    one.pass_ms(0)
    assert one.incarnations == {GONE, LEFT}


def test_a_log_with_links_keeps_its_states() -> None:
    one = home()
    wanted = Wanted(GONE, "user", "c", "l", Claim("g/0", 0, None, "m"), True, (0,))
    session = one.serving._session("node")
    assert session is not None
    session.known = {1: Reported(1, wanted)}
    for _ in range(2 * ROUNDS):
        one.sweep(LEFT)
    assert one.incarnations == {GONE, LEFT}
    session.known = {}
    one.sweep(LEFT)
    assert one.incarnations == {LEFT}


def test_a_home_that_moves_while_states_are_removed_stops() -> None:
    one = home(groups=REMOVED_A_STEP)
    for _ in range(ROUNDS):
        one.sweep(LEFT)
    one.pass_ms(TIMES.sweep_ms)
    one.sweeping.described([LEFT], one.now_ms)
    while not one.sweeping.removed:
        one.sweeping.tick(one.now_ms)
    assert one.sweeping.removed <= REMOVED_A_STEP
    one.here = one.open()
    one.pass_ms(0)
    assert one.sweeping.removed <= REMOVED_A_STEP


def test_many_states_are_looked_at_and_removed_in_steps() -> None:
    one = home(groups=2 * LOOKED_A_STEP)
    largest = 0
    for _ in range(ROUNDS + 1):
        one.pass_ms(TIMES.sweep_ms)
        one.sweeping.described([LEFT], one.now_ms)
        before = one.sweeping.removed
        while one.sweeping._work is not None:
            one.sweeping.tick(one.now_ms)
            largest, before = max(largest, one.sweeping.removed - before), one.sweeping.removed
    assert one.incarnations == {LEFT}
    assert 0 < largest <= REMOVED_A_STEP


def test_the_logs_of_one_round_have_a_limit() -> None:
    values = {f"owner/{number:0{INCARNATION_CHARACTERS}}/0/g": b"{}" for number in range(UNKNOWN_MAX + 5)}
    one = Home(values)
    one.pass_ms(0)
    one.pass_ms(TIMES.sweep_ms)
    assert len(one.sweeping._unknown) == UNKNOWN_MAX


@pytest.mark.parametrize(
    "key", ["home", "later/kind/0/g", "cursor/short/id", "owner/" + "x" * 23 + "/0/g", ""]
)
def test_other_states_are_never_touched(key: str) -> None:
    assert incarnation_in(key) is None
