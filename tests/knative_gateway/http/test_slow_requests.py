"""A request that does not arrive in time: the client gets 408 if it can be told apart from other answers."""

import re

import pytest

from tests.knative_gateway.http.wire import Echo, Wire

GET = b"GET /g HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
CHUNKED = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab"


class Collecting(Echo):
    """Answers when the body is complete, as the fast path of the ingress does. It has no time limit."""

    def begin(self) -> None:
        self.exchange.collects = True
        self.received()

    def received(self) -> None:
        if self.exchange.is_whole:
            self.answer()


class Refusing(Echo):
    def begin(self) -> None:
        self.answer()


class Silent(Echo):
    def answer(self) -> None:
        pass


def answers(wire: Wire) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]", bytes(wire.transport.written))]


@pytest.mark.parametrize("sent", [POST, POST + b"x" * 900, CHUNKED, GET[:-2], b"G"])
@pytest.mark.parametrize("before", [b"", GET])
def test_a_request_that_does_not_arrive_gets_408(before: bytes, sent: bytes) -> None:
    wire = Wire(Collecting)
    wire.send(before + sent)
    wire.look(29.0)
    assert answers(wire) == [200] * bool(before)
    wire.send(b"x" if sent.startswith(POST) else b"")
    wire.look(2.0)
    assert answers(wire)[bool(before) :] == [408]
    assert b"connection: close\r\n" in bytes(wire.transport.written)
    assert wire.transport.is_ended
    assert not wire.transport.is_closed, "the client reads the answer"
    assert all(each.lost_times <= 1 for each in wire.handlers)
    assert wire.connection.held == 0
    wire.look(3.0)
    assert wire.transport.is_closed


def test_a_client_that_sends_nothing_gets_no_answer() -> None:
    wire = Wire(Collecting)
    wire.look(31.0)
    assert wire.transport.is_closed
    assert not wire.transport.written


def test_an_answered_request_gets_no_second_answer() -> None:
    wire = Wire(Refusing)
    wire.send(POST)
    wire.look(31.0)
    assert answers(wire) == [200]
    assert wire.transport.is_ended


def test_behind_a_request_without_an_answer_the_connection_is_cut() -> None:
    """The answer could come at any time, and 408 would have to wait for it."""
    wire = Wire(Silent)
    wire.send(GET + POST)
    wire.look(31.0)
    assert wire.transport.is_closed
    assert not wire.transport.written
