"""Inquiries between nodes, over real sockets on loopback: they never delay a report or an answer."""

import asyncio
from typing import Any

import pytest

from amqp_streams.homes.messages import Description
from amqp_streams.homes.protocol import descriptions, dialogue, fields
from amqp_streams.homes.protocol.frames import Kind
from amqp_streams.server.homes import peer_connection
from amqp_streams.server.homes.peer_connection import (
    BYTES_A_SECOND,
    FRAMES_A_SECOND,
    INQUIRED_BYTES_A_SECOND,
    INQUIRED_FRAMES_A_SECOND,
    INQUIRED_MAX,
)
from tests.amqp_streams.server.homes.joined import (
    Connect,
    Start,
    asked,
    bodies,
    inquiry,
    owning,
    report,
    until,
)

BOTH_LOOPS = True


async def test_an_inquiry_reaches_the_home_and_its_description_comes_back(start: Start) -> None:
    home, node = await start("home"), await start("node")
    # The first waits for the connection, the second does not. Both need several frames.
    for number in (1, 2):
        assert node.peers.inquire(home.peers.address, inquiry(number, subjects=1000))
        await until(lambda: len(node.described.of("answered")) == len(home.inquired) == number)  # noqa: B023
    assert home.inquired == [("node", inquiry(number, subjects=1000)) for number in (1, 2)]
    wanted = [Description(number, (), tuple(map(owning, range(1000)))) for number in (1, 2)]
    assert [result for _, result in node.described.of("answered")] == wanted


async def test_a_node_inquires_nothing_of_itself_and_forgets_what_nobody_needs(start: Start) -> None:
    home, node = await start("home"), await start("node")
    assert not node.peers.inquire(node.peers.address, inquiry())
    node.peers.inquire(home.peers.address, inquiry(1))
    node.peers.forget_inquiry(home.peers.address, 1)
    node.peers.inquire(home.peers.address, inquiry(2))
    await until(lambda: node.described.of("answered"))
    assert [each.number for _, each in home.inquired] == [2]
    node.peers.forget_inquiry("127.0.0.1:1", 1)


async def test_reports_and_changes_are_sent_before_what_is_left_of_an_inquiry(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, node = await start("home"), await start("node")
    node.peers.send_report(home.peers.address, report("node"))
    await until(lambda: node.answers)
    (call,) = node.peers._calls.values()
    connection = call._connection
    assert connection is not None
    kinds: list[int] = []
    send = connection._send

    def noted(data: bytes) -> None:
        kinds.append(data[4])
        send(data)

    monkeypatch.setattr(connection, "_send", noted)
    node.peers.inquire(home.peers.address, inquiry(1, subjects=2000))
    await asyncio.sleep(0)
    large = report("node", 2, links=1000)
    node.peers.send_report(home.peers.address, large)
    node.peers.ask(home.peers.address, asked(1))
    await until(lambda: node.described.of("answered") and node.heard.of("answered") and len(node.answers) > 1)
    assert home.reports[-1] == large
    first = kinds.index(Kind.ASKED)
    assert Kind.INQUIRY not in kinds[first : len(kinds) - kinds[::-1].index(Kind.REPORT)]
    assert kinds[-1] == Kind.INQUIRY


async def test_descriptions_leave_most_of_what_the_other_node_reads_to_reports(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 4 * INQUIRED_FRAMES_A_SECOND <= FRAMES_A_SECOND
    assert 4 * INQUIRED_BYTES_A_SECOND <= BYTES_A_SECOND
    monkeypatch.setattr(peer_connection, "INQUIRED_BYTES_A_SECOND", 20_000)
    home, node = await start("home"), await start("node")
    node.peers.inquire(home.peers.address, inquiry(1, subjects=300))
    # Its description is limited as well, and needs more than a second.
    await until(lambda: home.inquired)
    await until(lambda: home.peers._nodes["node"]._pause is not None)
    node.peers.send_report(home.peers.address, report("node"))
    await until(lambda: node.answers)
    assert not node.described.of("answered"), "the report overtook the description"
    await until(lambda: node.described.of("answered"))


async def test_frames_of_descriptions_are_limited_as_well(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connection, "INQUIRED_FRAMES_A_SECOND", 3)
    home, node = await start("home"), await start("node")
    for number in range(1, 5):
        node.peers.inquire(home.peers.address, inquiry(number))
    await until(lambda: len(node.described.of("answered")) == 4)
    (call,) = node.peers._calls.values()
    assert call._connection is not None
    assert call._connection._inquired_frames <= 3


async def test_what_waits_is_bounded_and_a_node_that_does_not_read_gets_no_more(
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
        for _ in range(20):
            number += 1
            stranger.send(bodies(Kind.INQUIRY, *descriptions.inquiry_parts(inquiry(number, subjects=500))))
        assert len(connection._inquired) <= INQUIRED_MAX
        # The limit of frames a second is another one.
        connection._frames = connection._bytes = 0

    await until(lambda: len(connection._inquired) == INQUIRED_MAX and len(home.inquired) > 60, asks_again)
    other.peers.inquire(home.peers.address, inquiry(1))
    await until(lambda: other.described.of("answered"))
    assert connection._reason is None


async def test_a_lost_connection_is_reported_with_what_was_sent_on_it(start: Start) -> None:
    home, node = await start("home"), await start("node")
    home.mute = True
    node.peers.inquire(home.peers.address, inquiry(1))
    await until(lambda: home.inquired)
    address = home.peers.address
    assert node.peers.unreached(address) is None
    await home.peers.close()
    await until(lambda: node.described.of("lost"))
    assert node.described.of("lost") == [(1, address)]
    node.peers.inquire(address, inquiry(2))
    await until(lambda: node.peers.unreached(address), node.peers.tick)


async def test_a_home_of_an_earlier_version_gets_no_inquiries(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, node = await start("home"), await start("node")
    encoded = fields.encoded

    def as_before(body: Any) -> str:
        return encoded({**body, "takes": [dialogue.CHANGES]} if "role" in body else body)

    monkeypatch.setattr(dialogue, "encoded", as_before)
    node.peers.inquire(home.peers.address, inquiry(1))
    await until(lambda: node.described.of("not taken"))
    assert node.described.of("not taken") == [(1, home.peers.address)]
    node.peers.ask(home.peers.address, asked(1))
    await until(lambda: node.heard.of("answered"))
    assert home.inquired == []


@pytest.mark.parametrize(
    ("kind", "body"), [(Kind.INQUIRY, b"{}"), (Kind.INQUIRY, b"no"), (Kind.DESCRIPTION, b'{"number":1}')]
)
async def test_an_inquiry_that_is_not_valid_costs_its_connection(
    start: Start, connect: Connect, kind: Kind, body: bytes
) -> None:
    home, other = await start("home"), await start("other")
    stranger = await connect(home.peers.address)
    await stranger.prove("bad")
    stranger.send(bodies(kind, body))
    assert await stranger.frames() == []
    other.peers.inquire(home.peers.address, inquiry(1))
    await until(lambda: other.described.of("answered"))


async def test_an_inquiry_before_the_proof_is_not_read(start: Start, connect: Connect) -> None:
    home = await start("home")
    stranger = await connect(home.peers.address)
    stranger.send(bodies(Kind.INQUIRY, *descriptions.inquiry_parts(inquiry())))
    assert await stranger.frames() == []
    assert home.inquired == []
