"""Requests and answers have a budget for each loop iteration, for any number of links."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.links import turns as turns_module
from amqp_streams.server.links.link import Owner
from amqp_streams.server.links.turns import (
    CONNECTION_BYTES_MAX,
    NODE_BYTES_MAX,
    SMALL_BYTES,
    Iteration,
    OrderedCalls,
    OrderedSteps,
    Turns,
)
from amqp_streams.streams.attach import AttachRequest, Grant, Pending
from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer, frame_of, terminus
from amqp_streams.testing_amqp.node import ManualLoop
from amqp_streams.wire.types import UInt
from tests.amqp_streams.server.iterations import let_connections_take


@dataclass
class Peer:
    cuts: list[str] = field(default_factory=list)

    def cut(self, reason: str) -> None:
        self.cuts.append(reason)


@dataclass(eq=False)
class Working:
    """Carries out a number of steps, and records their order."""

    name: str
    steps: int
    done: list[str]
    fails: bool = False
    peer: Peer = field(default_factory=Peer)

    @property
    def owner(self) -> Owner:
        return cast("Owner", self.peer)

    def work(self) -> bool:
        assert not self.fails, "a fault of our own"
        self.done.append(self.name)
        self.steps -= 1
        return self.steps > 0


def made(monkeypatch: pytest.MonkeyPatch, steps_a_turn: int) -> tuple[Turns, ManualLoop, list[str]]:
    """Return turns whose clock allows this many steps, their loop, and where the steps are recorded."""
    loop, done = ManualLoop(), list[str]()
    monkeypatch.setattr(
        turns_module, "perf_counter", lambda: len(done) * turns_module.BUDGET_S / steps_a_turn
    )
    return Turns(loop.call_soon, Iteration(loop.call_soon)), loop, done


def idle_turns() -> Turns:
    loop = ManualLoop()
    return Turns(loop.call_soon, Iteration(loop.call_soon))


def test_a_turn_ends_with_its_budget_and_the_links_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop, done = made(monkeypatch, 2)
    for name in "abc":
        turns.add(cast("Any", Working(name, 2, done)))
    loop.run_ready()
    assert done == ["a", "b"]
    loop.run_ready()
    assert done == ["a", "b", "c", "a"]
    while loop.run_ready():
        pass
    assert done == ["a", "b", "c", "a", "b", "c"]
    assert turns.seconds > 0


def test_work_of_several_kinds_shares_the_time_of_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind gets a part. Before them comes what may not wait."""
    loop, done = ManualLoop(), list[str]()
    monkeypatch.setattr(turns_module, "perf_counter", lambda: len(done) * turns_module.LEAST_S)
    iteration = Iteration(loop.call_soon)
    kinds = [Turns(loop.call_soon, iteration, first=lambda: done.append("first")) for _ in range(3)]
    for turns, name in zip(kinds, "abc", strict=True):
        turns.add(cast("Any", Working(name, 8, done)))
    loop.run_ready()
    budget = round(turns_module.BUDGET_S / turns_module.LEAST_S)
    assert done == ["first", *["a"] * budget, "first", "b", "first", "c"]
    done.clear()
    loop.run_ready()
    assert done == ["first", *["a"] * budget, "first", "b", "first", "c"]


def test_a_link_is_in_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop, done = made(monkeypatch, 10)
    worker = cast("Any", Working("a", 1, done))
    turns.add(worker)
    turns.add(worker)
    loop.run_ready()
    assert done == ["a"]
    turns.add(worker)
    loop.run_ready()
    assert done == ["a", "a"]


def test_failing_work_closes_only_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop, done = made(monkeypatch, 10)
    broken = Working("broken", 1, done, fails=True)
    turns.add(cast("Any", broken))
    turns.add(cast("Any", Working("well", 1, done)))
    with capture_logs() as lines:
        loop.run_ready()
    assert done == ["well"]
    assert len(broken.peer.cuts) == 1
    assert [line["event"] for line in lines] == ["connection_failed"]


def test_requests_that_wait_are_bounded_by_connection_and_for_the_node() -> None:
    turns = idle_turns()
    assert turns.hold(1, CONNECTION_BYTES_MAX + 5), "one that is alone is let in"
    assert not turns.hold(1, 1)
    turns.release(1, CONNECTION_BYTES_MAX + 5)
    assert turns.uses()["request_bytes"].used == 0
    connection = 2
    while turns.hold(connection, CONNECTION_BYTES_MAX):
        connection += 1
    use = turns.uses()["request_bytes"]
    assert use.limit == NODE_BYTES_MAX
    assert use.limit - CONNECTION_BYTES_MAX < use.used <= use.limit


def test_a_small_request_is_admitted_however_much_others_have_waiting() -> None:
    turns, connection = idle_turns(), 1
    while turns.hold(connection, CONNECTION_BYTES_MAX):
        connection += 1
    while turns.hold(connection, 1000):
        pass
    other = connection + 1
    assert not turns.hold(other, SMALL_BYTES + 1)
    assert turns.hold(other, SMALL_BYTES)
    assert not turns.hold(other, 1), "one for each connection"
    turns.release(other, SMALL_BYTES)
    assert turns.hold(other, 1)


def test_requests_without_bytes_are_released_one_by_one() -> None:
    """Two empty messages that a client sent to `$management` at once ended its connection."""
    turns = idle_turns()
    assert all(turns.hold(1, size) for size in (0, 5, 0))
    for size in (5, 0, 0):
        turns.release(1, size)
    assert turns.uses()["request_bytes"].used == 0


# -- peers that ask for much at once


def opened(node: InMemoryNode) -> ScriptedPeer:
    peer = ScriptedPeer(node)
    peer.open()
    return peer


def connection_of(node: InMemoryNode) -> AmqpConnection:
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    return connection


def attaches(count: int) -> bytes:
    """Return the frames that attach and detach this many links."""
    ends: dict[str, Any] = {"source": terminus(0x28, "temps"), "target": terminus(0x29, None)}
    attach = frame_of("attach", name="many", handle=UInt(0), role=True, **ends)
    return (attach + frame_of("detach", handle=UInt(0), closed=True)) * count


def test_a_block_of_many_attaches_gives_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may cost milliseconds, and a block has room for thousands."""
    let_connections_take(-1.0, monkeypatch)
    node = InMemoryNode({"temps": 1})
    greedy, other = opened(node), opened(node)
    attached: list[str] = []
    attach = node.service.node.attach

    def counted(asked: AttachRequest, now_ms: int) -> Grant | Pending:
        attached.append(asked.link)
        return attach(asked, now_ms)

    monkeypatch.setattr(node.service.node, "attach", counted)
    greedy._out += attaches(50)
    other._out += frame_of(
        "attach",
        name="one",
        handle=UInt(0),
        role=True,
        source=terminus(0x28, "temps"),
        target=terminus(0x29, None),
    )
    node.run()
    assert attached.index("one") < 5
    assert attached.count("many") == 50
    assert len(greedy.take("detach")) == 50
    assert not greedy.lost


def test_a_peer_whose_turn_is_over_is_not_read_until_all_is_done_and_then_gets_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_connections_take(-1.0, monkeypatch)
    node = InMemoryNode({"temps": 1})
    peer = opened(node)
    connection = connection_of(node)
    for echo in range(2):
        connection.received(memoryview(attaches(3) + echo_of_the_session()))
        assert not peer.channel.reading
        while not peer.channel.reading:
            assert node.loop.run_ready()
        node.run()
        assert len(peer.take("detach")) == 3
        assert len(peer.take("flow")) == 1, echo


def test_a_peer_that_leaves_during_its_turns_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    let_connections_take(-1.0, monkeypatch)
    node = InMemoryNode({"temps": 1})
    peer = opened(node)
    connection_of(node).received(memoryview(attaches(30)))
    node.disconnect(peer)
    node.run()
    assert (list(node.service.node.consumers()), node.service.connections) == ([], {})


def echo_of_the_session() -> bytes:
    """Return a flow with echo."""
    windows = {
        "next_incoming_id": UInt(0),
        "incoming_window": UInt(100),
        "next_outgoing_id": UInt(0),
        "outgoing_window": UInt(100),
    }
    return frame_of("flow", echo=True, **windows)


class Calls:
    """Calls that are recorded, and those of later iterations."""

    def __init__(self) -> None:
        self.later: deque[Callable[[], None]] = deque()
        self.made: list[str] = []
        self.calls = OrderedCalls(
            self.later.append, Iteration(self.later.append), lambda: self.made.append("then")
        )

    def add(self, name: str) -> None:
        self.calls.add(lambda: self.made.append(name))

    def run(self) -> None:
        while self.later:
            self.later.popleft()()


def test_calls_keep_their_order_and_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", -1.0)  # one call takes all the time of an iteration
    calls = Calls()
    calls.calls.add(lambda: calls.add("added by the first one"))
    calls.add("b")
    calls.add("c")
    assert calls.made == []
    calls.run()
    assert calls.made == ["then", "b", "then", "c", "then", "added by the first one", "then"]


def test_calls_of_one_iteration_have_its_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", 60.0)
    calls = Calls()
    calls.add("a")
    monkeypatch.setattr(Iteration, "ends_s", lambda _: 0.0)  # the first call took all of it
    calls.add("b")
    calls.add("c")
    assert calls.made == ["a", "then"]
    calls.later.popleft()()
    calls.later.popleft()()
    assert calls.made == ["a", "then", "b", "then"]


def test_calls_are_made_at_once_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", 60.0)
    calls = Calls()
    for name in "abc":
        calls.add(name)
    assert calls.made == ["a", "then", "b", "then", "c", "then"]


def test_a_call_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", -1.0)
    calls = Calls()

    def fails() -> None:
        calls.add("b")
        raise ZeroDivisionError

    calls.calls.add(fails)
    calls.add("c")
    with pytest.raises(ZeroDivisionError):
        calls.run()
    calls.run()
    assert calls.made == ["then", "c", "then", "b", "then"]


# -- steps in order


def counted(made: list[str], name: str, steps: int) -> Iterator[None]:
    for number in range(steps):
        made.append(f"{name}{number}")
        yield


def test_steps_are_taken_in_order_and_at_least_one_in_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", -1.0)  # one step takes all the time of an iteration
    made, loop = list[str](), ManualLoop()
    steps = OrderedSteps(loop.call_soon)
    steps.add(counted(made, "a", 3))
    steps.add(counted(made, "b", 2))
    assert made == []
    loop.run_ready()
    assert made == ["a0"]
    while loop.run_ready():
        pass
    assert made == ["a0", "a1", "a2", "b0", "b1"]


def test_steps_are_taken_at_once_if_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", 60.0)
    made, loop = list[str](), ManualLoop()
    steps = OrderedSteps(loop.call_soon)

    def adding() -> Iterator[None]:
        steps.add(counted(made, "b", 1))
        yield from counted(made, "a", 2)

    steps.add(adding())
    assert made == ["a0", "a1", "b0"], "an iterator that a step adds waits for its turn"


def test_steps_that_fail_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "BUDGET_S", 60.0)
    made, loop = list[str](), ManualLoop()
    steps = OrderedSteps(loop.call_soon)

    def failing() -> Iterator[None]:
        steps.add(counted(made, "b", 2))
        yield
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        steps.add(failing())
    loop.run_ready()
    assert made == ["b0", "b1"]
