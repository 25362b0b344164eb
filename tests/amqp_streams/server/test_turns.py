"""Work beside the events has a budget for each turn, whoever asks and on however many links."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from amqp_streams.server import turns as turns_module
from amqp_streams.server.links import Owner
from amqp_streams.server.turns import CONNECTION_BYTES_MAX, NODE_BYTES_MAX, Turns
from amqp_streams.testing_amqp.node import ManualLoop


@dataclass
class Peer:
    cuts: list[str] = field(default_factory=list)

    def cut(self, reason: str) -> None:
        self.cuts.append(reason)


@dataclass(eq=False)
class Working:
    """Has some steps to do, and keeps in what order they were done."""

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


def made(monkeypatch: pytest.MonkeyPatch, steps_a_turn: int) -> tuple[Turns, ManualLoop]:
    """Turns whose clock allows so many steps."""
    loop, ticks = ManualLoop(), iter(range(1_000_000))
    monkeypatch.setattr(turns_module, "perf_counter", lambda: next(ticks) * turns_module.BUDGET_S / steps_a_turn)
    return Turns(loop.call_soon), loop


def test_a_turn_ends_with_its_budget_and_the_links_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop = made(monkeypatch, 2)
    done: list[str] = []
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


def test_a_link_is_in_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop = made(monkeypatch, 10)
    done: list[str] = []
    worker = cast("Any", Working("a", 1, done))
    turns.add(worker)
    turns.add(worker)
    loop.run_ready()
    assert done == ["a"]
    turns.add(worker)
    loop.run_ready()
    assert done == ["a", "a"]


def test_work_that_fails_costs_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop = made(monkeypatch, 10)
    done: list[str] = []
    broken = Working("broken", 1, done, fails=True)
    turns.add(cast("Any", broken))
    turns.add(cast("Any", Working("well", 1, done)))
    with capture_logs() as lines:
        loop.run_ready()
    assert done == ["well"]
    assert len(broken.peer.cuts) == 1
    assert [line["event"] for line in lines] == ["connection_failed"]


def test_requests_that_wait_are_bounded_by_connection_and_for_the_node() -> None:
    turns = Turns(ManualLoop().call_soon)
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
