"""The checks of `make chaos` for groups find what they are for; hand-overs are measured from traces."""

import json
from collections.abc import Sequence

import pytest

from bench.brokers.groups.fleet import SLOTS, roles, slots
from bench.brokers.groups.handovers import NodeEnd, handovers
from bench.brokers.groups.judging import GroupVerdict, judge_groups
from bench.brokers.groups.member import Role, Spec
from bench.brokers.groups.traces import Journals, NodeTraces, StateRecord
from bench.brokers.verdict import Place

KEY = "group g"
SLOT = (KEY, 0)
LOG = {0: [Place(offset, "w", offset) for offset in range(4)]}


def lines(*rows: Sequence[object]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


def grant(at: int, number: int, container: str, epoch: int | None = None) -> Sequence[object]:
    return ("grant", at, number, KEY, container, 0, epoch, [[0, 0]])


def two_nodes(*more: Sequence[object]) -> NodeTraces:
    """Link 1 of node a owns the partition from 1 ms on, link 1 of node b from 50 ms on."""
    found = NodeTraces()
    found.add("a", lines(grant(1_000, 1, "A", 3), ("send", 2_000, 1, 0, 0, 1), *more))
    found.add("b", lines(grant(50_000, 1, "B", 4), ("send", 51_000, 1, 0, 1, 3)))
    return found


def journals(*more: Sequence[object]) -> Journals:
    """A gets two events and settles the first, B gets the others and settles them."""
    found = Journals()
    rows = [
        ("got", 3_000, KEY, "A", 0, [[0, "w:0"], [1, "w:1"]]),
        ("settles", 4_000, KEY, "A", 0, [0]),
        ("got", 52_000, KEY, "B", 0, [[1, "w:1"], [2, "w:2"], [3, "w:3"]]),
        ("settles", 53_000, KEY, "B", 0, [1, 2, 3]),
    ]
    found.add(lines(*rows, *more))
    return found


def cursor(at: int, position: int) -> StateRecord:
    return StateRecord(0, at, "cursor/i/x", cursor=KEY, positions=((0, position),))


STATES = (cursor(1_000, 0), cursor(5_000, 1), cursor(60_000, 4))


def judged(
    nodes: NodeTraces | None = None,
    consumers: Journals | None = None,
    states: Sequence[StateRecord] = STATES,
) -> GroupVerdict:
    return judge_groups(nodes or two_nodes(), consumers or journals(), states, LOG, {SLOT})


def test_a_partition_that_is_handed_over_in_order_keeps_all_promises() -> None:
    verdict = judged()
    assert verdict.violations == ()
    assert (verdict.grants, verdict.deliveries, verdict.redelivered, verdict.settled) == (2, 5, 1, 4)


def test_a_write_that_was_allowed_after_the_next_grant_has_two_owners() -> None:
    verdict = judged(two_nodes(("send", 50_500, 1, 0, 2, 2)))
    assert verdict.two_owners == 1
    assert "wrote 0.5 ms after the grant" in verdict.violations[0]


@pytest.mark.parametrize(("closed", "found"), [(False, (1, 0)), (True, (0, 1))])
def test_a_write_that_a_stop_delayed_must_close_its_link(closed: bool, found: tuple[int, int]) -> None:
    verdict = judged(two_nodes(("wrote", 2_000, 1, 60, closed)))
    assert (verdict.two_owners, verdict.late_closed) == found


def test_an_epoch_that_falls_is_found_in_grants_and_in_the_topic() -> None:
    nodes = two_nodes()
    nodes.add("c", lines(grant(70_000, 1, "C", 3)))
    topic = [StateRecord(0, 1, "epoch/i/0/g", number=4), StateRecord(0, 2, "epoch/i/0/g", number=3)]
    verdict = judged(nodes, states=[*STATES, *topic])
    assert verdict.epochs_fallen == 2


def test_a_cursor_that_passes_what_no_owner_settled_is_found() -> None:
    assert judged(states=[cursor(5_000, 2)]).cursors_ahead == 1
    # B settled it at 53 ms.
    assert judged(states=[cursor(40_000, 2)]).cursors_ahead == 1
    assert judged(states=[cursor(53_000, 2)]).cursors_ahead == 0
    stale = journals(("settles", 51_500, KEY, "A", 0, [1]))
    assert judged(consumers=stale, states=[cursor(52_000 - 2_001, 2)]).cursors_ahead == 1
    assert judged(consumers=stale).stale == 1


def test_a_cursor_that_falls_is_found() -> None:
    verdict = judged(states=[*STATES, cursor(70_000, 3)])
    assert (verdict.cursors_fallen, len(verdict.violations)) == (1, 1)


def test_an_event_that_comes_again_after_the_node_settled_it_is_found() -> None:
    again = journals(("settled", 20_000, KEY, "A", 0, 1))
    assert judged(consumers=again).settled_again == 1
    assert judged(consumers=journals(("settled", 20_000, KEY, "A", 0, 0))).settled_again == 0


def test_a_link_that_sends_an_offset_twice_and_an_event_that_did_not_come_are_found() -> None:
    assert judged(two_nodes(("send", 3_000, 1, 0, 1, 2))).reordered == 1
    some = Journals()
    some.add(lines(("got", 3_000, KEY, "A", 0, [[0, "w:0"], [1, "w:9"]])))
    verdict = judged(consumers=some, states=[])
    assert verdict.missed == 3
    assert any("got ['w:9']" in words for words in verdict.violations)


def test_what_came_late_out_of_the_buffers_of_the_kernel_is_counted() -> None:
    late = journals(("got", 57_000, KEY, "A", 0, [[2, "w:2"]]))
    verdict = judged(consumers=late)
    assert (verdict.violations, verdict.received_late, verdict.latest_ms) == ((), 1, 7)


def test_a_line_that_was_not_written_whole_is_left_out() -> None:
    traces = NodeTraces()
    traces.add("a", [*lines(grant(1, 1, "A")), '["grant", 2'])
    assert len(traces.grants) == 1


def test_records_of_states_are_read() -> None:
    home = StateRecord.of(1, 5, b"home", b'{"v":1,"term":7,"node":"n","address":"a","let_go":false}')
    assert home.number == 7
    value = b'{"v":1,"container":"c","link":"l","user":null,"at":1,"next":{"0":5,"1":6}}'
    state = StateRecord.of(1, 5, b"cursor/i/x", value)
    assert (state.cursor, state.positions) == ("link c l", ((0, 5), (1, 6)))
    assert StateRecord.of(1, 5, b"epoch/i/0/g", b'{"v":1,"epoch":3}').number == 3
    assert StateRecord.of(1, 5, b"cursor/i/x", None).cursor is None


def test_handovers_are_measured_from_the_end_of_the_node() -> None:
    nodes = NodeTraces()
    nodes.add(
        "a", lines(("serves", 500, 3, 1), ("serves", 500, 4, 1), ("rests", 900, 4), grant(1_000, 1, "A"))
    )
    nodes.add("b", lines(("serves", 7_001_000, 3, 2), ("serves", 9_000_000, 4, 2), grant(9_001_000, 1, "B")))
    found = handovers(nodes, [NodeEnd(1_000, "a", "killed")])
    assert (found["killed"].homes, found["killed"].partitions) == ((7.0,), (9.0,))
    assert found["drained"].words() == "homes none; partitions none"
    assert found["killed"].words().startswith("homes 1: median 7.0 s")


def test_each_group_has_members_in_each_process_and_subscriptions_all_modes() -> None:
    every = [role for slot in range(SLOTS) for role in roles(slot, 0, "log", 2)]
    assert len({role.name for role in every}) == len(every)
    assert {role.settle for role in every if role.kind == "subscription"} == {"auto", "manual", "second"}
    members = [role for role in every if role.key == "group manual1"]
    assert len(members) == SLOTS + 1
    assert len(slots("log", 4, 2)) == 4 * (4 + 3) + 2
    spec = Spec(("amqp://a", "amqp://b"), tuple(every))
    assert Spec.of(spec.text) == spec
    assert isinstance(spec.roles[0], Role)
