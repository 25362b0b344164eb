"""A request that is read as a whole is the same request as the parser reads."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knative_gateway.http.exchange import Exchange
from knative_gateway.http.reading import RefusedError, RequestReader
from knative_gateway.http.responses import Header
from knative_gateway.http.whole import HEAD_BYTES_MAX, whole_request
from tests.knative_gateway.http.wire import Wire

PLAIN = (
    b"POST /broker/default/b HTTP/1.1\r\nHost: x\r\nce-id: 1\r\nContent-Type: a/b; c=d\r\n"
    b"Content-Length: 3\r\n\r\nabc"
)


class Taker:
    """Keeps the requests that a reader has read."""

    def __init__(self) -> None:
        self.whole: list[Exchange] = []

    def head_came(self, exchange: Exchange) -> None:
        pass

    def request_ended(self, exchange: Exchange) -> None:
        self.whole.append(exchange)


def parsed(data: bytes) -> list[tuple[bytes, bytes, list[Header], bytes, bool, bool]] | None:
    """The requests in the data as the parser reads them; None: it refuses the data, or a part is left."""
    taker: Any = Taker()
    reader = RequestReader(taker)
    try:
        reader.parse(memoryview(data))  # only `bytes` may be read as a whole
    except RefusedError:
        return None
    if reader.is_in_head or reader.current is not None:
        return None
    return [
        (each.method, each.target, each.headers, bytes(each.body), each.keep_alive, each.expects_continue)
        for each in taker.whole
    ]


NAMES = st.sampled_from(
    (b"Host", b"ce-id", b"Content-Length", b"connection", b"Transfer-Encoding", b"expect", b"Upgrade", b"te")
) | st.from_regex(rb"[A-Za-z0-9_:\x00 -]{1,6}", fullmatch=True)
VALUES = st.sampled_from(
    (b"3", b"03", b"+3", b"3, 3", b"keep-alive", b"close", b"chunked", b"100-continue", b"h2c", b"", b" a ")
) | st.from_regex(rb"[ -~\t\r\n\x00\xe4]{0,6}", fullmatch=True)
LINES = st.tuples(NAMES, st.sampled_from((b": ", b":", b" :", b":\t")), VALUES).map(b"".join)
FIRST = st.sampled_from(
    (
        b"POST /b HTTP/1.1",
        b"POST /b HTTP/1.0",
        b"POST /b?c HTTP/1.1",
        b"POST b HTTP/1.1",
        b"POST * HTTP/1.1",
        b"GET /b HTTP/1.1",
        b"POST  /b HTTP/1.1",
    )
)


@given(
    FIRST,
    st.lists(LINES | st.just(b"Content-Length: 3"), max_size=4),
    st.sampled_from((b"\r\n", b"\n", b"\r")),
    st.sampled_from((b"", b"abc", b"abcd", b"abc\r\n", b"abcPOST / HTTP/1.1\r\n\r\n")),
)
@example(b"POST /b HTTP/1.1", [b"Content-Length: 3", b"Content-Length: 3"], b"\r\n", b"abc")
@example(b"POST /b HTTP/1.1", [b"Content-Length: 3", b"connection: keep-alive"], b"\r\n", b"abc")
def test_the_result_is_that_of_the_parser(first: bytes, lines: list[bytes], end: bytes, body: bytes) -> None:
    data = end.join((first, *lines, b"", b"")) + body
    for _ in range(3):  # the second time, the lines are remembered; the third time, the frame
        check(data)


def check(data: bytes) -> bool:
    """Return whether the data was read as a whole. If so, the parser reads the same."""
    found = whole_request(data)
    if found is None:
        return False
    assert parsed(data) == [(b"POST", found.target, found.headers, found.body, True, False)]
    return True


@given(
    st.lists(
        st.sampled_from(
            (
                *(b"Host: x", b"ce-time: 1", b"Content-Length: 3", b"ce-id: 7", b"X-ce-id: 8", b"ce-id: "),
                *(b"connection: keep-alive", b"X: \xff", b"Content-Length: 4"),
            )
        ),
        max_size=4,
    ),
    st.integers(0, 4),
    st.sampled_from((b"ce-id: ", b"Ce-Id: ", b"CE-ID: ", b"ce-id:")),
    st.lists(
        st.sampled_from((b"1", b"a b", b"", b" 1", b"1 ", b"\xff", b"1\r\nce-id: 2", b"1\n", b"\x00")),
        max_size=6,
    ),
    st.sampled_from((b"abc", b"abcd")),
)
def test_requests_that_differ_in_the_id_are_read_as_others_are(
    lines: list[bytes], place: int, name: bytes, ids: list[bytes], body: bytes
) -> None:
    for value in (b"n1", b"n2", *ids):
        made = [*lines[:place], name + value, *lines[place:], b"content-length: 3"]
        check(b"\r\n".join((b"POST /b HTTP/1.1", *made, b"", b"")) + body)


def test_a_plain_request_needs_no_parser() -> None:
    headers = [(b"host", b"x"), (b"ce-id", b"1"), (b"content-type", b"a/b; c=d"), (b"content-length", b"3")]
    for event_id in (b"1", b"22", b"333"):
        headers[1] = (b"ce-id", event_id)
        found = whole_request(PLAIN.replace(b"ce-id: 1", b"ce-id: " + event_id))
        assert found is not None
        assert found[:3] == (b"/broker/default/b", headers, b"abc")
        if event_id == b"333":
            assert found.frame is not None
            assert found.frame.headers[1] != headers[1], "a request does not change the frame"


@pytest.mark.parametrize(
    "data",
    [
        PLAIN[:-1],
        PLAIN + b"x",
        PLAIN + PLAIN,
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN.replace(b"/b ", b"/b?c "),
        PLAIN.replace(b"Content-Length: 3\r\n", b""),
        PLAIN.replace(b"Content-Length: 3", b"Content-Length: " + b"0" * 15 + b"3"),
        PLAIN.replace(b"ce-id: 1", b"Transfer-Encoding: chunked"),
        PLAIN.replace(b"ce-id: 1", b"Expect: 100-continue"),
        PLAIN.replace(b"ce-id: 1", b"Connection: close"),
        PLAIN.replace(b"ce-id: 1", b"Connection: Upgrade\r\nUpgrade: h2c"),
        PLAIN.replace(b"ce-id: 1", b"ce-id: 1\r\n 2"),
        PLAIN.replace(b"ce-id: 1", b"ce-id: " + b"1" * HEAD_BYTES_MAX),
    ],
)
def test_the_parser_reads_all_other_requests(data: bytes) -> None:
    assert whole_request(data) is None


def test_requests_between_those_of_the_parser_are_answered_in_order() -> None:
    """A part of a request that the parser holds comes before the whole request behind it."""
    wire = Wire()
    wire.send(b"POST /1 HTTP/1.1\r\ncontent-length: 4\r\n\r\n", b"abcd", PLAIN, b"\r", b"\nGET /3 HTTP/1.1")
    wire.send(b"\r\n\r\n", PLAIN, b"POST /5 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(PLAIN), PLAIN)
    made = [(handler.exchange.target, handler.taken) for handler in wire.handlers]
    whole = (b"/broker/default/b", b"abc")
    assert made == [(b"/1", b"abcd"), whole, (b"/3", b""), whole, (b"/5", PLAIN)]


def test_an_internal_error_costs_its_connection_only() -> None:
    def broken(_exchange: Exchange) -> Any:
        message = "a defect"
        raise RuntimeError(message)

    wire = Wire(broken)
    assert b"500 Internal Server Error" in wire.send(PLAIN)
    assert wire.transport.is_ended
