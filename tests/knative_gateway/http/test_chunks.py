"""Chunks of one byte cost as much as large ones: a client that sends them delays no other client."""

import re

import pytest

from knative_gateway.http.connection import HEAD_BYTES, LINGER_BYTES_MAX, PARTS_AT_ONCE
from knative_gateway.http.reading import DROPPED_BYTES_MAX
from tests.knative_gateway.http.wire import Echo, Wire

HEAD = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = b"1\r\nx\r\n"
END = b"0\r\n\r\n"
BLOCK = CHUNK * 40_000
"""About what one read of a socket returns."""
PARTS_MAX = PARTS_AT_ONCE + 2 * (HEAD_BYTES // len(CHUNK) + 2)


class Refusing(Echo):
    """Answers before the body arrives."""

    def begin(self) -> None:
        self.answer()


class Collecting(Echo):
    def begin(self) -> None:
        self.exchange.collects = True

    def received(self) -> None:
        if self.exchange.is_whole:
            self.answer()


def status(wire: Wire) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]", bytes(wire.transport.written))]


@pytest.mark.parametrize("handler", [Echo, Collecting, Refusing])
def test_a_turn_parses_few_chunks_and_reads_nothing_more(handler: type[Echo]) -> None:
    wire = Wire(handler)
    reader = wire.connection._reader
    wire.connection.data_received(HEAD)
    wire.run()
    before = reader.parts
    wire.connection.data_received(BLOCK)
    turns = 0
    while wire.connection._left:
        assert wire.transport.is_paused, "the socket is not read while chunks of it wait"
        assert wire.due, "the connection waits for a turn"
        assert 0 < reader.parts - before <= PARTS_MAX
        before = reader.parts
        wire.connection.turn()
        turns += 1
    assert turns > 40_000 / PARTS_MAX
    assert not wire.transport.is_paused
    wire.send(END)
    assert status(wire) == [200]


def test_large_chunks_need_no_turns() -> None:
    wire = Wire(Collecting)
    wire.connection.data_received(HEAD)
    wire.connection.data_received(b"8000\r\n" + b"x" * 0x8000 + b"\r\n" + END)
    assert not wire.due
    assert status(wire) == [200]


@pytest.mark.parametrize("chunked", [True, False])
def test_of_a_body_after_the_answer_only_a_part_is_read(chunked: bool) -> None:
    wire = Wire(Refusing)
    wire.send(HEAD if chunked else b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n")
    assert status(wire) == [200]
    sent = 0
    while not wire.transport.is_ended:
        wire.send(b"400\r\n" + b"x" * 0x400 + b"\r\n" if chunked else b"x" * 0x400)
        sent += 0x400
        assert sent <= DROPPED_BYTES_MAX + 2 * 0x400
    assert sent > DROPPED_BYTES_MAX
    assert status(wire) == [200], "one answer"
    assert not wire.transport.is_closed, "the client can still read its answer"
    wire.look(3.0)
    assert wire.transport.is_closed


def test_after_the_last_answer_reading_ends_before_the_connection_does() -> None:
    """Otherwise a client could make the gateway read at the full speed of the network."""
    wire = Wire()
    wire.send(b"nonsense\r\n\r\n")
    assert status(wire) == [400]
    sent = 0
    while not wire.transport.is_paused:
        wire.send(b"x" * (1 << 18))
        sent += 1 << 18
        assert sent <= LINGER_BYTES_MAX + (1 << 18)
    assert sent > LINGER_BYTES_MAX
    wire.look(3.0)
    assert wire.transport.is_closed


def test_a_body_after_the_answer_that_ends_leaves_the_connection_usable() -> None:
    wire = Wire(Refusing)
    for _ in range(3):
        wire.send(HEAD, b"30000\r\n" + b"x" * 0x30000 + b"\r\n", END)
    assert status(wire) == [200] * 3
    assert not wire.transport.is_ended
