"""Connections between nodes whose other side is cut, silent, slow, too fast, or not a node."""

import asyncio
import os

import pytest
from structlog.testing import capture_logs

from amqp_streams.errors import PeerError
from amqp_streams.homes.messages import Answer, Ends
from amqp_streams.homes.protocol import frames, reports
from amqp_streams.homes.protocol.dialogue import NONCE_BYTES, Dialogue, Reason, Role, refusal
from amqp_streams.homes.protocol.frames import HELLO_BYTES_MAX, Kind
from amqp_streams.homes.protocol.parts import PART_BYTES
from amqp_streams.server.homes import peer_connection
from amqp_streams.server.homes.peer_connection import (
    BEAT_S,
    HELLO_S,
    SILENCE_S,
    UNSENT_BYTES_MAX,
    PeerConnection,
)
from tests.amqp_streams.server.homes.joined import (
    SECRET,
    Connect,
    Node,
    Start,
    Stranger,
    bodies,
    identity,
    report,
    until,
)

BOTH_LOOPS = True


async def proved(home: Node, connect: Connect, process: str = "p") -> tuple[Stranger, PeerConnection]:
    """Another program that has the secret, and the connection to it."""
    stranger = await connect(home.peers.address)
    await stranger.prove(process)
    await until(lambda: process in home.peers._nodes)
    return stranger, home.peers._nodes[process]


def caller() -> Dialogue:
    return Dialogue(Role.CALLER, identity("p"), (SECRET.encode(),), os.urandom(NONCE_BYTES))


async def test_every_cut_of_the_bytes_means_the_same(start: Start, connect: Connect) -> None:
    home = await start()
    stranger = await connect(home.peers.address)
    dialogue = caller()
    sent = dialogue.begin()
    whole = bodies(Kind.REPORT, *reports.parts(report("p", links=3)))
    while True:
        for data in sent:
            for each in data:
                stranger.send(bytes([each]))
                await stranger.writer.drain()
        if dialogue.done:
            break
        frame = await stranger.frame()
        assert frame is not None
        sent = dialogue.take(frame)
        sent = sent or ([whole] if dialogue.done else [])
    await until(lambda: home.reports)
    assert home.reports == [report("p", links=3)]


async def test_a_connection_that_is_cut_in_a_frame_or_between_parts_delivers_nothing(
    start: Start, connect: Connect
) -> None:
    home = await start()
    parts = [frames.encoded(Kind.REPORT, body) for body in reports.parts(report("p", links=300))]
    assert len(parts) > 2
    for cut in (parts[0][:-1], b"".join(parts[:-1]), b"".join(parts)[:-1]):
        stranger, _ = await proved(home, connect)
        stranger.send(cut)
        await stranger.writer.drain()
        await stranger.close()
        await until(lambda: "p" not in home.peers._nodes)
    assert home.reports == []
    # Parts of the connection before mean nothing on the next.
    stranger, _ = await proved(home, connect)
    stranger.send(parts[-1])
    assert await stranger.frames() == []
    assert home.reports == []


async def test_a_node_that_does_not_prove_in_time_is_cut(start: Start, connect: Connect) -> None:
    home = await start()
    silent, half = await connect(home.peers.address), await connect(home.peers.address)
    half.send(*caller().begin())
    assert await half.frame() is not None
    await until(lambda: len(home.peers._called) == 2)
    with capture_logs() as lines:
        for connection in list(home.peers._called):
            connection.tick(HELLO_S)
            assert connection in home.peers._called
            connection.tick(0.1)
        assert await silent.frames() == await half.frames() == []
    assert [line["event"] for line in lines] == ["node_refused"], "one line for one network and reason"
    assert "did not prove in 5 s" in home.peers.refused[0]


async def test_a_node_that_is_silent_is_cut_and_one_with_beats_is_not(start: Start, connect: Connect) -> None:
    home = await start()
    stranger, connection = await proved(home, connect)
    for _ in range(3):
        connection.tick(SILENCE_S - BEAT_S)
        frame = await stranger.frame()
        assert frame is not None
        assert frame.kind == Kind.BEAT, "this node says that it is there"
        stranger.send(frames.encoded(Kind.BEAT, b"{}"))
        await until(lambda: connection._silent_s == 0)
    connection.tick(SILENCE_S - 0.1)
    assert connection.open
    connection.tick(0.2)
    assert not connection.open
    await until(lambda: not home.peers._nodes)


async def test_a_home_that_says_nothing_is_left(start: Start) -> None:
    """As half-open connections are: the other machine is gone, and nobody says so."""
    node = await start()
    accepted: list[asyncio.StreamWriter] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    node.peers.send_report(address, report("process 0"))
    call = node.peers._calls[address]
    await until(lambda: accepted and call._connection is not None)
    call.tick(HELLO_S + 0.1)
    await until(lambda: node.peers.problems)
    assert "did not prove in 5 s" in node.peers.problems[0]
    assert call.waiting == 1, "the last report waits for the next connection"
    server.close()
    for writer in accepted:
        writer.transport.abort()
    await server.wait_closed()


def large_answer(number: int, bucket: int) -> Answer:
    error = PeerError("amqp:resource-locked", "x" * 1000)
    return Answer(bucket, 1, number, True, 1, tuple(Ends(each, error) for each in range(200)))


async def test_a_node_that_never_reads_costs_bounded_memory_and_then_its_connection(
    start: Start, connect: Connect
) -> None:
    home, other = await start("home"), await start("other")
    stranger, connection = await proved(home, connect)
    stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]
    transport = connection._transport
    assert transport is not None
    number = 0

    def answers_again() -> None:
        nonlocal number
        number += 1
        for bucket in range(16):
            home.peers.send_answer("p", large_answer(number, bucket))
        assert connection.waiting <= 16
        assert transport.get_write_buffer_size() <= UNSENT_BYTES_MAX + 2 * PART_BYTES

    await until(lambda: connection._full, answers_again)
    for _ in range(50):
        answers_again()
        await asyncio.sleep(0)
    assert [each.number for each in connection._waiting.values()] == [number] * 16, "only the newest wait"
    # Others are served.
    other.peers.send_report(home.peers.address, report("other"))
    await until(lambda: other.answers)
    connection.tick(0.1)
    for _ in range(2):  # it sends, and reads nothing
        stranger.send(frames.encoded(Kind.BEAT, b"{}"))
        await until(lambda: connection._silent_s == 0)
        connection.tick(SILENCE_S / 2 + 0.1)
    assert "read nothing" in str(connection._reason)
    await until(lambda: "p" not in home.peers._nodes)
    assert connection.waiting == 0


async def test_a_node_that_reads_slowly_gets_the_newest_answer_in_the_end(
    start: Start, connect: Connect
) -> None:
    home = await start("home")
    stranger, connection = await proved(home, connect)
    stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]
    number = 0

    def answers_again() -> None:
        nonlocal number
        number += 1
        home.peers.send_answer("p", large_answer(number, 0))

    await until(lambda: connection._full, answers_again)
    stranger.writer.transport.resume_reading()  # type: ignore[attr-defined]
    last = 0
    while last != number:
        frame = await stranger.frame()
        assert frame is not None
        last = int(frame.body.split(b'"number":', 1)[1].split(b",", 1)[0])


async def test_a_flood_is_not_read_faster_than_the_limit_and_others_are_served(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connection, "FRAMES_A_SECOND", 50)
    home, other = await start("home"), await start("other")
    stranger, connection = await proved(home, connect)
    seconds: dict[float, int] = {}
    take = connection._take

    def counted(frame: frames.Frame) -> None:
        take(frame)
        seconds[connection._second] = max(seconds.get(connection._second, 0), connection._frames)

    monkeypatch.setattr(connection, "_take", counted)
    stranger.send(frames.encoded(Kind.BEAT, b"{}") * 120, bodies(Kind.REPORT, *reports.parts(report("p"))))
    other.peers.send_report(home.peers.address, report("other"))
    await until(lambda: other.answers)
    assert [each.node for each in home.reports] == ["other"], "the flood waits"
    await until(lambda: len(home.reports) == 2)
    assert max(seconds.values()) == 50
    assert len(seconds) >= 3


async def test_a_flood_of_bytes_is_not_read_faster_than_the_limit(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connection, "BYTES_A_SECOND", 1 << 20)
    home = await start("home")
    stranger, connection = await proved(home, connect)
    seconds = set()
    take = connection._take

    def noted(frame: frames.Frame) -> None:
        seconds.add(connection._second)
        take(frame)

    monkeypatch.setattr(connection, "_take", noted)
    stranger.send(*[frames.encoded(Kind.BEAT, bytes(700_000))] * 4)
    stranger.send(bodies(Kind.REPORT, *reports.parts(report("p"))))
    await until(lambda: home.reports)
    assert len(seconds) >= 3


async def test_a_frame_before_the_proof_is_small(start: Start, connect: Connect) -> None:
    home = await start("home")
    stranger = await connect(home.peers.address)
    stranger.send((HELLO_BYTES_MAX + 1).to_bytes(4))
    assert await stranger.frames() == []
    assert f"from 1 to {HELLO_BYTES_MAX} bytes" in home.peers.refused[0]


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", b"\x00\x00\x00\x00", b"\xff" * 99]
)
async def test_other_protocols_are_cut_at_once(start: Start, connect: Connect, data: bytes) -> None:
    home = await start("home")
    stranger = await connect(home.peers.address)
    stranger.send(data)
    assert await stranger.frames() == []


async def test_a_report_before_the_proof_is_not_read(start: Start, connect: Connect) -> None:
    home = await start("home")
    stranger = await connect(home.peers.address)
    stranger.send(*caller().begin(), bodies(Kind.REPORT, *reports.parts(report("p"))))
    kinds = [frame.kind for frame in await stranger.frames()]
    assert Kind.PROOF not in kinds
    assert home.reports == []


async def test_a_proof_that_was_recorded_is_refused(start: Start, connect: Connect) -> None:
    home = await start("home")
    first = await connect(home.peers.address)
    dialogue = caller()
    recorded = dialogue.begin()
    first.send(*recorded)
    frame = await first.frame()
    assert frame is not None
    recorded += dialogue.take(frame)
    first.send(recorded[-1])
    frame = await first.frame()
    assert frame is not None
    dialogue.take(frame)
    assert dialogue.done, "the recorded proof was good once"
    second = await connect(home.peers.address)
    second.send(*recorded)
    _hello, refused = await second.frames()
    assert (refused.kind, refusal(refused.body).args) == (Kind.REFUSED, refusal(b'{"reason":"secret"}').args)
    assert home.peers.refused, "refused"


async def test_a_home_that_sends_the_proof_of_the_caller_back_is_refused(start: Start) -> None:
    node = await start("node")
    seen: list[str] = []

    async def reflect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stranger = Stranger(reader, writer)
        fake = Dialogue(Role.CALLED, identity("fake"), (b"?" * 32,), os.urandom(NONCE_BYTES))
        hello = await stranger.frame()
        assert hello is not None
        stranger.send(*fake.take(hello))
        proof = await stranger.frame()
        assert proof is not None
        stranger.send(frames.encoded(Kind.PROOF, proof.body))
        seen.extend(str(refusal(each.body)) for each in await stranger.frames() if each.kind == Kind.REFUSED)
        await stranger.close()

    server = await asyncio.start_server(reflect, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    node.peers.send_report(address, report("node"))
    await until(lambda: node.peers.problems and seen)
    assert "different secrets" in node.peers.problems[0]
    assert seen == [str(refusal(b'{"reason":"%s"}' % Reason.SECRET.encode()))]
    server.close()
    await server.wait_closed()


async def test_reports_that_are_never_finished_are_bounded_over_all_nodes(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "UNFINISHED_BYTES_MAX", 100_000)
    home, other = await start("home"), await start("other")
    liars = [await connect(home.peers.address) for _ in range(12)]
    for number, liar in enumerate(liars):
        await liar.prove(f"liar {number}")
        parts = list(reports.parts(report(f"liar {number}", links=300)))
        liar.send(bodies(Kind.REPORT, *parts[:-1]))
    await until(lambda: home.peers.reports.given_up)
    large = report("other", links=300)
    other.peers.send_report(home.peers.address, large)
    await until(lambda: other.answers)
    assert home.reports == [large]
    assert home.peers.reports.bytes <= 100_000
    # A node whose report was given up is still connected, and its next report counts.
    liars[0].send(bodies(Kind.REPORT, *reports.parts(report("liar 0", 2))))
    await until(lambda: len(home.reports) == 2)
    for liar in liars:
        await liar.close()
    await until(lambda: home.peers.reports.bytes == 0)
