"""The logs of a node by their addresses."""

from functools import partial
from itertools import count

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError
from amqp_streams.node.logs import LogCounters, Logs
from amqp_streams.node.lookups import Answering
from amqp_streams.node.writes import Wait
from amqp_streams.policy import AccessRule, Right
from amqp_streams.streams.access import Access, Identity
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore


def logs(store: MemoryStore, *, auto_create: int = 0) -> Logs:
    ids = count(1)
    return Logs(store, lambda: f"id{next(ids)}", auto_create_partitions=auto_create, partitions_max=4)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tmps", "no log named 'tmps'; did you mean 'temps'\\?"),
        ("orders", "no log named 'orders': amqp-streams log create orders --partitions 4"),
        ("$cbs", "no log named '\\$cbs', and this is not a valid address"),
        ("x" * 1000, "this is not a valid address"),
    ],
)
def test_an_address_without_a_log_is_answered_with_what_to_do(address: str, words: str) -> None:
    known = logs(MemoryStore())
    known.create("temps", LogSettings())
    with pytest.raises(PeerError, match=words):
        known.at(address)


def test_a_name_that_a_user_may_not_see_is_not_suggested() -> None:
    known = logs(MemoryStore())
    known.create("temps", LogSettings())
    nobody = Access((AccessRule(users=("alice",), logs=("*",), allow=(Right.INFO,)),), {}).of(Identity("bob"))
    with pytest.raises(PeerError) as refused:
        known.at("tmps", nobody)
    assert "temps" not in refused.value.description


def test_a_log_is_found_counted_and_gone() -> None:
    known = logs(MemoryStore())
    made = known.create("temps", LogSettings(partitions=2))
    assert known.at("temps") is made
    assert known.counters == {"temps": LogCounters()}
    finish(known.deleting("temps", None))
    assert known.counters == {}
    with pytest.raises(PeerError, match="log create temps") as refused:
        known.at("temps")
    assert refused.value.condition == names.NOT_FOUND


def test_logs_that_were_there_before_are_counted_from_the_start() -> None:
    store = MemoryStore()
    store.create("old", LogSettings(), incarnation="i")
    assert logs(store).counters == {"old": LogCounters()}


def test_an_incarnation_is_never_given_twice() -> None:
    known = logs(MemoryStore())
    first = known.create("temps", LogSettings())
    finish(known.deleting("temps", None))
    assert known.create("temps", LogSettings()).incarnation != first.incarnation


def test_logs_on_demand_are_for_users_with_the_right_and_few() -> None:
    store = MemoryStore()
    known = logs(store, auto_create=3)
    may = Access([AccessRule(users=("ann",), logs=("temps",), allow=(Right.MANAGE,))])
    with pytest.raises(PeerError) as refused:
        known.at("temps", may.of(Identity("bob")))
    assert refused.value.condition == names.UNAUTHORIZED_ACCESS
    assert len(known.at("temps", may.of(Identity("ann"))).partitions) == 3
    with pytest.raises(PeerError) as refused:
        known.at("other")
    assert refused.value.condition == names.RESOURCE_LIMIT_EXCEEDED


def change(done: list[int], number: int, wait: Wait | None = None) -> Answering[None]:
    if wait is not None:
        yield wait
    done.append(number)


def test_changes_of_a_log_follow_each_other_however_many_wait() -> None:
    known, done, first = logs(MemoryStore()), list[int](), Wait()
    callers = [known.changing("temps", change(done, 0, first), 1)]
    callers += [known.changing("temps", change(done, number), 1) for number in range(1, 3000)]
    for caller in callers:
        # As an attach: it continues within the call of the store.
        next(caller).then(partial(finish, caller))
    finish(known.changing("other", change(done, -1), 1))
    finish(known.changing("temps", change(done, -2), None))
    assert done == [-1, -2], "other logs do not wait, and neither does a caller that cannot"
    first.ended(None, 0)
    assert done[2:] == list(range(3000))
    finish(known.changing("temps", change(done, 3000), 1))
    assert done[-1] == 3000


@pytest.mark.parametrize("granted", [False, True])
def test_a_caller_that_leaves_before_its_turn_gives_it_back(*, granted: bool) -> None:
    known, done, first = logs(MemoryStore()), list[int](), Wait()
    callers = [known.changing("temps", change(done, 0, first), 1)]
    callers += [known.changing("temps", change(done, number), 1) for number in (1, 2)]
    for caller in callers:
        next(caller)
    if granted:
        first.ended(None, 0)
        callers[1].close()
    else:
        callers[1].close()
        first.ended(None, 0)
    finish(callers[2])
    assert done == [0, 2]
