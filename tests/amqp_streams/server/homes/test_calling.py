"""Changes that a node asks another node for, over real sockets on loopback."""

import asyncio
import json
from typing import Any

import pytest

from amqp_streams.homes.messages import Outcome
from amqp_streams.homes.protocol import changes, dialogue, fields
from amqp_streams.homes.protocol.frames import Kind
from amqp_streams.server.homes.peer_connection import SAID_MAX
from tests.amqp_streams.server.homes.joined import (
    Connect,
    Start,
    asked,
    bodies,
    report,
    until,
)

BOTH_LOOPS = True


async def test_a_change_reaches_the_home_once_and_its_outcome_comes_back(start: Start) -> None:
    home, node = await start("home"), await start("node")
    # The first waits for the connection, the second does not.
    assert node.peers.ask(home.peers.address, asked(1))
    await until(lambda: node.heard.of("answered"))
    assert node.peers.ask(home.peers.address, asked(2))
    await until(lambda: len(node.heard.of("answered")) == 2)
    assert home.asked == [("node", asked(1)), ("node", asked(2))]
    assert node.heard.of("answered") == [(each, Outcome(each, 200, "moved", "{}")) for each in (1, 2)]
    assert [number for number, _ in node.heard.of("sent")] == [1, 2]
    assert not node.heard.of("lost")


async def test_a_change_between_the_parts_of_a_report_harms_neither(start: Start) -> None:
    home, node = await start("home"), await start("node")
    large = report("node", links=3000)
    node.peers.send_report(home.peers.address, large)
    for number in range(1, 20):
        node.peers.ask(home.peers.address, asked(number))
    await until(lambda: node.answers and len(node.heard.of("answered")) == 19)
    assert home.reports == [large]


async def test_a_node_asks_nothing_of_itself(start: Start) -> None:
    node = await start("node")
    assert not node.peers.ask(node.peers.address, asked())
    assert not node.peers._calls


async def test_a_connection_that_ends_leaves_what_was_sent_in_doubt(start: Start) -> None:
    home, node = await start("home"), await start("node")
    home.mute = True
    node.peers.ask(home.peers.address, asked(1))
    await until(lambda: home.asked)
    await home.peers.close()
    await until(lambda: node.heard.of("lost"))
    assert node.heard.of("lost") == [(1, home.peers.address)]


async def test_a_change_that_nobody_waits_for_is_not_sent_later(start: Start) -> None:
    home, node = await start("home"), await start("node")
    node.peers.ask(home.peers.address, asked(1))
    node.peers.forget(home.peers.address, 1)
    node.peers.ask(home.peers.address, asked(2))
    await until(lambda: node.heard.of("answered"))
    assert [each.number for _, each in home.asked] == [2]
    node.peers.forget("127.0.0.1:1", 1)


async def test_a_home_that_is_not_reached_is_a_problem_and_nothing_was_sent(start: Start) -> None:
    home, node = await start("home"), await start("node")
    await home.peers.close()
    node.peers.ask(home.peers.address, asked(1))
    await until(lambda: node.peers.problem(home.peers.address))
    assert node.heard.outcomes == []


async def test_a_home_of_an_earlier_version_gets_reports_and_no_changes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its HELLO does not say that it takes changes: it would ignore them, and the user would wait."""
    home, node = await start("home"), await start("node")
    encoded = fields.encoded

    def as_before(body: Any) -> str:
        return encoded(
            {key: value for key, value in body.items() if key != "takes"} if "role" in body else body
        )

    monkeypatch.setattr(dialogue, "encoded", as_before)
    node.peers.send_report(home.peers.address, report("node"))
    await until(lambda: node.answers)
    node.peers.ask(home.peers.address, asked(1))
    assert node.heard.outcomes == [("not taken", 1, home.peers.address)]
    # A node of the earlier version ignores the field of this one.
    home.peers.send_report(node.peers.address, report("home"))
    await until(lambda: home.answers)
    assert home.asked == []


async def test_a_change_of_a_later_version_gets_an_answer_and_keeps_its_connection(
    start: Start, connect: Connect
) -> None:
    home = await start("home")
    stranger = await connect(home.peers.address)
    await stranger.prove("later")
    stranger.send(bodies(Kind.ASKED, b'{"number":7,"change":"merge"}'))
    frame = await stranger.frame()
    assert frame is not None
    assert (frame.kind, json.loads(frame.body)["status"]) == (Kind.OUTCOME, 501)
    stranger.send(bodies(Kind.ASKED, changes.asked_body(asked(8))))
    frame = await stranger.frame()
    assert frame is not None
    assert changes.outcome_of(frame.body).number == 8


@pytest.mark.parametrize(
    ("kind", "body"), [(Kind.ASKED, b"{}"), (Kind.ASKED, b"no"), (Kind.OUTCOME, b'{"number":1}')]
)
async def test_a_change_that_is_not_valid_costs_its_connection(
    start: Start, connect: Connect, kind: Kind, body: bytes
) -> None:
    home, other = await start("home"), await start("other")
    stranger = await connect(home.peers.address)
    await stranger.prove("bad")
    stranger.send(bodies(kind, body))
    assert await stranger.frames() == []
    other.peers.ask(home.peers.address, asked(1))
    await until(lambda: other.heard.of("answered"))


async def test_a_change_before_the_proof_is_not_read(start: Start, connect: Connect) -> None:
    home = await start("home")
    stranger = await connect(home.peers.address)
    stranger.send(bodies(Kind.ASKED, changes.asked_body(asked())))
    assert await stranger.frames() == []
    assert home.asked == []


async def test_a_node_that_asks_without_reading_is_cut_and_others_are_served(
    start: Start, connect: Connect
) -> None:
    home, other = await start("home"), await start("other")
    stranger = await connect(home.peers.address)
    await stranger.prove("flood")
    connection = home.peers._nodes["flood"]
    stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]
    number = 0

    def asks_again() -> None:
        nonlocal number
        for _ in range(50):
            number += 1
            stranger.send(bodies(Kind.ASKED, changes.asked_body(asked(number, "g" * 250))))
        assert len(connection._said) <= SAID_MAX
        # The limit of frames a second is another one.
        connection._frames = 0

    home_tells = "x" * 2000

    def answer_much(_process: str, question: Any, answer: Any) -> None:
        answer(Outcome(question.number, 200, home_tells, "y" * 60_000))

    home.peers._on_asked = answer_much  # type: ignore[misc]
    await until(lambda: connection._reason is not None, asks_again)
    assert "does not read the outcomes" in str(connection._reason)
    other.peers.ask(home.peers.address, asked(1))
    await until(lambda: other.heard.of("answered"))
    await asyncio.sleep(0)
    assert len(connection._said) == 0
