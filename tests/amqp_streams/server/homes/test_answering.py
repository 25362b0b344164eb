"""Changes for other nodes: bounds, failures, and changes whose node is gone."""

from collections.abc import Iterator
from typing import Any

from structlog.testing import capture_logs

from amqp_streams.homes.changing.changes import OutcomeSteps
from amqp_streams.homes.messages import Asked, Outcome
from amqp_streams.node.writes import Wait
from amqp_streams.server.homes.answering import RUNNING_A_NODE_MAX, RUNNING_MAX, Answering
from amqp_streams.server.links.turns import Iteration, Turns
from amqp_streams.testing import ManualLoop
from tests.amqp_streams.server.homes.joined import asked


class Home:
    """Carries out changes that wait for `commit`."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.waits: list[Wait] = []
        self.result: list[Outcome] = []
        self.fails = False
        self.answering = Answering(self.carry_out, Turns(self.loop.call, Iteration(self.loop.call)))

    def carry_out(self, asked: Asked) -> OutcomeSteps:
        yield None
        wait = Wait()
        self.waits.append(wait)
        yield wait
        if self.fails:
            raise RuntimeError("a fault of the home")
        return Outcome(asked.number, 204, "deleted")

    def ask(self, process: str, number: int = 1) -> None:
        self.answering.begin(process, asked(number), self.result.append)
        self.loop.run_ready()

    def commit(self) -> None:
        waits, self.waits = self.waits, []
        for wait in waits:
            wait.ended(None, 0)
        self.loop.run_ready()


def test_a_change_is_answered_when_it_is_made() -> None:
    home = Home()
    home.ask("a", 7)
    assert home.result == []
    assert home.answering.running == 1
    home.commit()
    assert home.result == [Outcome(7, 204, "deleted")]
    assert home.answering.running == 0
    assert home.answering.outcomes == {204: 1}


def test_a_node_that_asks_for_too_much_costs_itself_only() -> None:
    home = Home()
    for number in range(RUNNING_A_NODE_MAX):
        home.ask("a", number)
    home.ask("a", 99)
    (refused,) = home.result
    assert (refused.number, refused.status) == (99, 503)
    assert "too many changes wait" in refused.description
    home.ask("b", 1)
    home.commit()
    assert len(home.result) == RUNNING_A_NODE_MAX + 2
    home.ask("a", 100)
    home.commit()
    assert home.result[-1].status == 204


def test_all_nodes_together_have_a_limit() -> None:
    home = Home()
    for number in range(RUNNING_MAX):
        home.ask(f"node {number}")
    home.ask("another")
    assert [each.status for each in home.result] == [503]
    assert home.answering.running == RUNNING_MAX


def test_a_fault_is_an_answer_and_is_logged() -> None:
    home = Home()
    home.fails = True
    home.ask("a")
    with capture_logs() as lines:
        home.commit()
    assert [each.status for each in home.result] == [500]
    assert [line["event"] for line in lines] == ["change_failed"]
    assert home.answering.running == 0


def test_many_steps_are_taken_in_turns() -> None:
    home = Home()
    steps = 0

    def long(asked: Asked) -> Iterator[None]:
        nonlocal steps
        while steps < 10_000:
            steps += 1
            yield None
        return Outcome(asked.number, 204, "deleted")  # type: ignore[return-value]

    carry_out: Any = long
    home.answering = Answering(carry_out, Turns(home.loop.call, Iteration(home.loop.call)))
    home.answering.begin("a", asked(), home.result.append)
    assert steps == 0, "in a later iteration of the loop"
    home.loop.run_ready()
    assert [each.status for each in home.result] == [204]
