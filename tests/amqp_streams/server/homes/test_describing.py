"""Descriptions for other nodes: bounds, failures, and turns."""

from collections.abc import Generator

from structlog.testing import capture_logs

from amqp_streams.homes.describing.inquiring import OPEN_A_HOME_MAX
from amqp_streams.homes.messages import Description, Inquiry
from amqp_streams.server.homes.describing import RUNNING_A_NODE_MAX, RUNNING_MAX, Describing
from amqp_streams.server.links.turns import Iteration, Turns
from amqp_streams.testing import ManualLoop
from tests.amqp_streams.server.homes.joined import inquiry, owning


class Home:
    """Describes in some steps, or fails."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.result: list[Description] = []
        self.fails = False
        self.steps = 0
        self.describing = Describing(self.describe, Turns(self.loop.call, Iteration(self.loop.call)))

    def describe(self, inquiry: Inquiry) -> Generator[None, None, Description]:
        for _ in range(10_000):
            self.steps += 1
            yield
            if self.fails:
                raise RuntimeError("a fault of the home")
        return Description(inquiry.number, (), (owning(0),))

    def ask(self, process: str, number: int = 1) -> None:
        self.describing.begin(process, inquiry(number), self.result.append)


def test_an_inquiry_is_answered_in_turns() -> None:
    home = Home()
    home.ask("a", 7)
    assert home.steps == 0, "in a later iteration of the loop"
    home.loop.run_ready()
    assert home.result == [Description(7, (), (owning(0),))]
    assert home.describing.running == 0
    assert home.describing.outcomes == {"described": 1, "failed": 0, "refused": 0}


def test_a_node_that_inquires_too_much_gets_empty_descriptions_and_costs_no_other_node() -> None:
    home = Home()
    assert RUNNING_A_NODE_MAX == OPEN_A_HOME_MAX
    for number in range(RUNNING_A_NODE_MAX):
        home.ask("a", number)
    home.ask("a", 99)
    assert home.result == [Description(99)]
    home.ask("b", 1)
    home.loop.run_ready()
    assert len([each for each in home.result if each.items]) == RUNNING_A_NODE_MAX + 1
    home.ask("a", 100)
    home.loop.run_ready()
    assert home.result[-1].items


def test_all_nodes_together_have_a_limit() -> None:
    home = Home()
    for number in range(RUNNING_MAX):
        home.ask(f"node {number}")
    home.ask("another", 5)
    assert home.result == [Description(5)]
    assert home.describing.running == RUNNING_MAX
    assert home.describing.outcomes["refused"] == 1


def test_a_fault_is_an_empty_description_and_is_logged() -> None:
    home = Home()
    home.fails = True
    home.ask("a", 3)
    with capture_logs() as lines:
        home.loop.run_ready()
    assert home.result == [Description(3)]
    assert [line["event"] for line in lines] == ["description_failed"]
    assert home.describing.running == 0
