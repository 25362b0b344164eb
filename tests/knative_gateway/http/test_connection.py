"""A connection with clients of every kind: which bytes are requests, in which order it answers, and when it
ends.
"""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.http.connection import BODY_BYTES_HELD, HEAD_BYTES, WAITING_MAX, Connection
from knative_gateway.http.exchange import Exchange
from knative_gateway.http.patience import STALLED_S
from knative_gateway.http.reading import HEAD_BYTES_MAX, HEADERS_MAX, PIECE_BYTES, TARGET_BYTES_MAX
from tests.knative_gateway.http.wire import Echo, Transport, Wire, bytewise

GET = b"GET /g HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = (
    b"POST /c HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\ntrailer:"
    b" dropped\r\n\r\n"
)
UPGRADE = b"connection: upgrade\r\nupgrade: h2c\r\n"


def post(body: bytes, *headers: bytes) -> bytes:
    return b"POST /p HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (
        b"".join(line + b"\r\n" for line in headers),
        len(body),
        body,
    )


def statuses(written: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]", written)]


class Later(Echo):
    """Answers on request."""

    def answer(self) -> None:
        pass


class Slow(Echo):
    """Takes nothing of the body until the test allows it."""

    def begin(self) -> None:
        pass

    def received(self) -> None:
        pass


WHOLE = st.sampled_from(
    (
        GET,
        CHUNKED,
        post(b""),
        post(b"abc"),
        post(b"body", b"expect: 100-continue"),
        post(b"GET /smuggled HTTP/1.1\r\n\r\n", b"connection: upgrade", b"upgrade: h2c"),
        CHUNKED.replace(b"/c HTTP/1.1\r\n", b"/u HTTP/1.1\r\n" + UPGRADE),
        b"\r\nHEAD /h HTTP/1.1\r\n\r\n",
        b"GET /old HTTP/1.0\r\n\r\n",
        GET.replace(b"host", b"connection: close\r\nhost"),
        post(b"x" * 40_000),
    )
)
BROKEN = st.sampled_from(
    (
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        post(b"abc").replace(b"content-length: 3", b"content-length: 3\r\ntransfer-encoding: chunked"),
        CHUNKED.replace(b"3;x=y", b"zz"),
        GET.replace(b"host: x", b"a: b\r\n c"),
    )
)


@given(st.lists(WHOLE | BROKEN | st.binary(max_size=30), max_size=6), st.data())
def test_bytes_one_by_one_or_in_any_pieces_mean_the_same_as_all_at_once(
    sent: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(sent)
    at_once, in_pieces = Wire(), Wire()
    expected = at_once.send(stream)
    if len(stream) < 2000:
        pieces = list(bytewise(stream))
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
        pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = in_pieces.send(*pieces)
    # Whether 100 Continue is needed depends on what is here already. Spec: RFC 9110, 10.1.1.
    assert found.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"") == expected.replace(
        b"HTTP/1.1 100 Continue\r\n\r\n", b""
    )
    assert in_pieces.transport.is_ended is at_once.transport.is_ended


@given(
    st.binary(min_size=1, max_size=200).filter(lambda data: data[:1] not in b"\r\n" and b"HTTP/1" not in data)
)
def test_garbage_gets_400_and_the_connection_ends(garbage: bytes) -> None:
    wire = Wire()
    assert statuses(wire.send(GET, garbage, b"\r\n" * 4)) in ([200, 400], [200, 505])
    assert wire.transport.is_ended
    assert len(statuses(wire.send(GET))) == 2, "nothing is read any more"


@given(st.lists(WHOLE.filter(lambda each: b"close" not in each and b"1.0" not in each), max_size=5))
def test_every_valid_request_is_answered_once_and_in_order(sent: list[bytes]) -> None:
    wire = Wire()
    wire.send(b"".join(sent))
    # All have one.
    targets = [re.search(rb"(/[a-z]+) HTTP/1.1\r", each)[1] for each in sent]  # type: ignore[index]
    assert [handler.exchange.target for handler in wire.handlers] == targets
    assert all(handler.exchange.is_answered for handler in wire.handlers)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 3, 3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\naX0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n11111111111111111\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\rc: d\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: \x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nhost: x\n\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"CONNECT a:80 HTTP/1.1\r\n\r\n", 501),
        (b"GET /" + b"x" * TARGET_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"x" * (2 * HEAD_BYTES_MAX), 431),
        (b"\r\n" * HEAD_BYTES_MAX, 431),
        (CHUNKED[:-2] + b"t: " + b"x" * 2 * HEAD_BYTES_MAX, 431),
        (CHUNKED.replace(b"x=y", b"x" * 2 * HEAD_BYTES_MAX), 431),
    ],
)
def test_ambiguous_and_endless_requests_are_refused(sent: bytes, status: int) -> None:
    """Spec: RFC 9112, 5.1, 5.2, 6.1, 6.3, 7.1; 11.2 on request smuggling."""
    for pieces in (
        [GET + sent + GET],
        [GET, sent, GET],
        [(GET + sent)[at : at + 997] for at in range(0, len(GET + sent), 997)],
    ):
        wire = Wire(Later)
        wire.send(*pieces)
        assert not wire.transport.written, "the first request has its answer first"
        Echo.answer(wire.handlers[0])
        assert statuses(wire.send()) == [200, status]
        assert wire.transport.is_ended


def test_an_upgrade_is_ignored_and_its_body_is_a_body() -> None:
    """Otherwise its content would be the next request. Spec: RFC 9110, 7.8."""
    smuggled = b"GET /smuggled HTTP/1.1\r\n\r\n"
    wire = Wire()
    wire.send(post(smuggled, UPGRADE[:-2]) + GET.replace(b"host: x\r\n", UPGRADE) + GET)
    assert [(handler.exchange.method, handler.taken) for handler in wire.handlers] == [
        (b"POST", smuggled),
        (b"GET", b""),
        (b"GET", b""),
    ]
    assert not wire.transport.is_ended


def test_a_request_after_an_ignored_upgrade_is_refused_as_it_would_be_alone() -> None:
    """The refusal is not reported as an internal error: the parser keeps the reason as the context of its own
    error.
    """
    wire = Wire()
    assert statuses(wire.send(post(b"abc", UPGRADE[:-2]) + b"CONNECT a:1 HTTP/1.1\r\n\r\n")) == [200, 501]


def test_the_last_request_is_the_last() -> None:
    for last in (GET.replace(b"host", b"connection: close\r\nhost"), GET.replace(b"1.1", b"1.0")):
        wire = Wire()
        assert statuses(wire.send(last + GET)) == [200]
        assert wire.transport.is_closed


def test_a_client_that_waits_for_100_is_invited_and_a_refused_one_cannot_continue() -> None:
    waiting = post(b"abc", b"expect: 100-continue")
    wire = Wire()
    assert wire.send(waiting[:-3]) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert statuses(wire.send(b"abc" + GET)) == [100, 200, 200]
    refusing = Wire(Slow)
    refusing.send(waiting[:-3])
    refusing.handlers[0].answer()
    assert refusing.transport.is_ended
    assert b"close: True" in refusing.transport.written


def test_a_client_that_sends_ahead_waits_and_nothing_is_lost() -> None:
    """The product of requests and their bodies is bounded."""
    wire = Wire(Later)
    wire.send(GET * 5000)
    assert wire.transport.is_paused
    assert len(wire.handlers) == 1
    assert len(wire.connection._queue) <= WAITING_MAX + HEAD_BYTES // len(GET) + 1
    wire.send(GET)  # TLS hands over what it has, paused or not
    at = 0
    while at < len(wire.handlers):
        Echo.answer(wire.handlers[at])
        wire.run()
        at += 1
    assert at == 5001
    assert not wire.transport.is_paused


def test_requests_that_are_answered_at_once_do_not_pile_up() -> None:
    """The answers do not call each other recursively."""
    wire = Wire()
    assert len(statuses(wire.send(GET * 5000))) == 5000


def test_a_body_that_no_one_takes_is_not_read() -> None:
    wire = Wire(Slow)
    wire.send(b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 200_000)
    handler = wire.handlers[0]
    assert wire.transport.is_paused
    assert len(handler.exchange.body) <= BODY_BYTES_HELD + PIECE_BYTES
    wire.look(after_s=1000)
    assert not wire.transport.is_closed, "it is not the client that takes so long"
    taken = b""
    while not handler.exchange.is_whole:
        taken += handler.exchange.take()
        if not wire.transport.is_paused:
            wire.send(b"x" * min(100_000, 1_000_000 - len(taken) - len(handler.exchange.body)))
    assert taken + handler.exchange.take() == b"x" * 1_000_000


def test_the_remaining_body_is_dropped_after_the_answer() -> None:
    wire = Wire(Slow)
    wire.send(b"POST / HTTP/1.1\r\ncontent-length: 500000\r\n\r\n" + b"x" * 100_000)
    assert wire.transport.is_paused
    wire.handlers[0].answer()
    assert not wire.transport.is_paused
    assert not wire.transport.is_ended
    wire.send(b"x" * 400_000 + GET)
    assert [handler.exchange.target for handler in wire.handlers] == [b"/", b"/g"]


def test_a_client_that_does_not_read_its_answers_is_not_read_and_finally_disconnected() -> None:
    wire = Wire()
    wire.connection.pause_writing()
    wire.send(GET)
    assert wire.transport.is_paused
    assert not wire.handlers, "no answer is made that has no room"
    wire.transport.waiting = 100
    wire.look(after_s=STALLED_S - 1)
    wire.transport.waiting = 99
    wire.look(after_s=STALLED_S - 1)
    wire.look(after_s=2)
    assert not wire.transport.is_closed, "it reads slowly"
    wire.look(after_s=STALLED_S)
    assert wire.transport.is_closed
    reading = Wire()
    reading.connection.pause_writing()
    reading.send(GET)
    reading.connection.resume_writing()
    assert statuses(reading.send(GET)) == [200, 200]


@pytest.mark.parametrize("begun", [b"", b"POST / HT", post(b"abc")[:-1], GET + b"GET"])
def test_a_request_that_takes_too_long_ends_the_connection(begun: bytes) -> None:
    """One byte now and then does not help."""
    wire = Wire()
    wire.send(begun)
    wire.look(after_s=20)
    wire.look(after_s=9)
    assert not wire.transport.is_ended
    wire.look(after_s=2)
    assert wire.transport.is_ended


def test_an_idle_connection_is_closed_but_not_over_a_request_that_is_here_unread() -> None:
    wire = Wire()
    wire.send(GET)
    wire.look()
    wire.look(after_s=61)
    assert not wire.transport.is_closed
    wire.send(GET)  # it was here all the time: the loop had other things to do
    assert len(wire.handlers) == 2
    wire.look(after_s=1)
    wire.look(after_s=59)
    wire.look(after_s=2)
    assert not wire.transport.is_closed
    wire.look(after_s=1)
    assert wire.transport.is_closed


def test_a_slow_answer_is_not_cut() -> None:
    wire = Wire(Later)
    wire.send(GET)
    wire.look(after_s=10_000)
    wire.look(after_s=10_000)
    assert not wire.transport.is_closed


def test_after_a_refusal_the_client_has_time_to_see_it() -> None:
    wire = Wire()
    wire.send(b"nonsense\r\n\r\n")
    assert wire.transport.is_ended
    assert not wire.transport.is_closed, "a reset would destroy the refusal"
    wire.send(b"more" * 100)
    assert wire.connection.eof_received() is False
    wire.look(after_s=1)
    assert not wire.transport.is_closed
    wire.look(after_s=1)
    assert wire.transport.is_closed


def test_a_client_that_closes_its_side_gets_all_answers() -> None:
    wire = Wire(Later)
    wire.send(post(b"a") * 2000)
    assert wire.connection.eof_received()
    for _ in range(2000):
        Echo.answer(wire.handlers[-1])
    assert len(statuses(wire.send())) == 2000
    assert wire.transport.is_closed


def test_a_client_that_closes_its_side_in_a_request_gets_the_answers_to_earlier_ones() -> None:
    wire = Wire(Later)
    wire.send(post(b"a") * 2000 + post(b"a")[:-1])
    assert wire.connection.eof_received()
    for _ in range(2000):
        Echo.answer(wire.handlers[-1])
    assert statuses(wire.send()) == [200] * 2000 + [400]
    assert wire.transport.is_ended


@pytest.mark.parametrize("sent", [b"", b"GET", GET, post(b"abc")[:-1], post(b"a") + GET])
def test_a_client_that_only_reads_or_sent_a_part_and_closes_its_side_has_left(sent: bytes) -> None:
    wire = Wire(Later)
    wire.send(sent)
    assert not wire.connection.eof_received()


@pytest.mark.parametrize("whole", [True, False])
def test_the_handler_is_notified_once_that_the_client_has_left(whole: bool) -> None:
    wire = Wire(Later)
    wire.send(post(b"abc")[: None if whole else -1])
    wire.send(GET if whole else b"")
    wire.connection.connection_lost(None)
    assert [(handler.lost_times, handler.exchange.is_lost) for handler in wire.handlers] == [(1, True)]
    Echo.answer(wire.handlers[0])
    assert not wire.transport.written
    assert not wire.service.connections


def test_the_handler_of_a_body_that_turns_out_wrong_is_notified_and_the_client_too() -> None:
    wire = Wire(Later)
    wire.send(CHUNKED.replace(b"1\r\nd", b"zz\r\nd"))
    assert wire.handlers[0].lost_times == 1
    assert statuses(wire.send()) == [400]
    begun = Wire(Slow)
    begun.send(CHUNKED[:60])
    begun.handlers[0].exchange.write(b"HTTP/1.1 200 OK\r\n")
    begun.send(b"zz\r\n")
    assert statuses(begun.send()) == [200], "a second answer would be taken for a part of the first"
    assert begun.transport.is_closed


class Faulty(Echo):
    def begin(self) -> None:
        raise ZeroDivisionError


def test_a_fault_of_ours_costs_its_connection_only() -> None:
    wire = Wire(Faulty)
    assert statuses(wire.send(GET)) == [500]
    assert wire.transport.is_ended


def test_one_connection_too_many_is_cut() -> None:
    wire = Wire(connections_max=0)
    assert wire.transport.is_closed


def test_room_is_made_by_the_connection_that_waits_longest() -> None:
    wire = Wire(Later, connections_max=4)

    def connected() -> tuple[Connection, Transport]:
        connection, transport = Connection(wire.service), Transport()
        connection.connection_made(transport)
        return connection, transport

    first = wire.connection, wire.transport
    busy, answered, left = connected(), connected(), connected()
    for connection, _ in (busy, first, answered):
        connection.data_received(GET)
    Echo.answer(wire.handlers[2])
    Echo.answer(wire.handlers[1])  # waits for a shorter time than `answered`
    left[0].connection_lost(None)
    transports = [each[1] for each in (busy, answered, first, left, *(connected() for _ in range(4)))]
    # `busy` and `left` do not wait. One of the four new connections has room, the others close the oldest.
    assert [transport.is_closed for transport in transports] == [
        *(False, True, True, False),
        *(True, False, False, False),
    ]


def test_going_down_idle_connections_are_closed_and_others_answer_first() -> None:
    def wire_with(sent: bytes) -> Any:
        wire = Wire(Later)
        wire.send(sent)
        wire.service.is_leaving = True
        wire.connection.shut()
        return wire

    assert wire_with(b"").transport.is_closed
    for sent in (GET, GET[:10], post(b"abc")[:-1]):
        wire = wire_with(sent)
        assert not wire.transport.is_closed
        wire.send(GET[10:] if sent == GET[:10] else b"c" if sent != GET else b"")
        Echo.answer(wire.handlers[0])
        assert b"close: True" in wire.transport.written
        assert wire.transport.is_closed


def test_one_request_too_large_for_a_piece_is_one_all_the_same() -> None:
    large = GET.replace(b"host: x", b"a: " + b"x" * (HEAD_BYTES_MAX - 100))
    wire = Wire()
    assert statuses(wire.send(large)) == [200]
    assert isinstance(wire.handlers[0].exchange, Exchange)
