"""The values that are read from headers."""

import pytest

from knative_gateway.errors import BadRequestError, UnsupportedMediaError
from knative_gateway.ingress import requests
from knative_gateway.ingress.requests import Request


def test_the_relevant_headers_are_found_and_the_others_left() -> None:
    found = Request(
        [
            (b"host", b"h"),
            (b"authorization", b"Bearer x"),
            (b"content-length", b"12"),
            (b"cookie", b"c"),
            (b"ce-id", b"1"),
        ]
    )
    assert (found.authorization, found.length, found.trace, found.passed_on) == ("Bearer x", 12, None, None)


def test_the_trace_and_what_is_passed_on_are_kept() -> None:
    """Knative's header policy: x-request-id, knative-*, x-b3-*; authorization and cookies never."""
    found = Request(
        [
            (b"traceparent", b"00-a"),
            (b"tracestate", b"x=y"),
            (b"x-request-id", b"r"),
            (b"knative-x", b"1"),
            (b"x-b3-traceid", b"2"),
            (b"knative-x", b"3"),
            (b"authorization", b"Bearer s"),
            (b"x-other", b"4"),
        ]
    )
    assert found.trace == {"traceparent": "00-a", "tracestate": "x=y"}
    assert found.passed_on == {"x-request-id": "r", "knative-x": "1, 3", "x-b3-traceid": "2"}


@pytest.mark.parametrize("name", ["knative-x", "knative-%d"], ids=["one name", "many names"])
def test_all_that_is_kept_together_is_bounded(name: str) -> None:
    """A batch of 1,000 events stores it 1,000 times: 100 KB of headers would become 32 MB of the log. The
    hops are always kept.
    """
    headers = [((name % number if "%" in name else name).encode(), b"x" * 1000) for number in range(60)]
    found = Request([*headers, (b"knative-hops", b"7")]).passed_on
    assert found is not None
    assert found["knative-hops"] == "7"
    assert sum(len(name) + len(value) for name, value in found.items()) <= 4096 + len("knative-hops7") + 10


def test_kept_headers_are_bounded() -> None:
    many = [(b"knative-%d" % number, b"x") for number in range(99)]
    found = Request(
        [
            *many,
            (b"x-request-id", b"x" * 1025),
            (b"traceparent", b"\xff"),
            (b"tracestate", b"a\tb"),
            (b"traceparent", b"\x7f"),
        ]
    )
    assert found.passed_on is not None
    assert len(found.passed_on) == 32
    assert found.trace is None


def test_hops_are_counted_to_their_end() -> None:
    found = Request([(b"knative-hops", b"255")])
    assert found.passed_on == {"knative-hops": "255"}
    for value in (b"256", b"-1", b"x", b"9" * 30, b""):
        with pytest.raises(BadRequestError, match="went through more than 255"):
            Request([(b"knative-hops", value)])


def test_two_authorizations_are_refused() -> None:
    """A proxy and a server could use different headers."""
    with pytest.raises(BadRequestError, match="the request has more than one Authorization header"):
        Request([(b"authorization", b"Bearer a"), (b"host", b"h"), (b"authorization", b"Bearer a")])


@pytest.mark.parametrize(
    ("hosts", "has_host"),
    [((), False), ((b"h:1",), True), ((b"h", b"h"), False), ((b"a b@c",), False), ((b"a b@c", b"h"), False)],
)
def test_exactly_one_valid_host_counts(hosts: tuple[bytes, ...], *, has_host: bool) -> None:
    assert Request([(b"host", host) for host in hosts]).has_host is has_host


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ((b"content-length", b"-1"), BadRequestError),
        ((b"content-length", b""), BadRequestError),
        ((b"content-encoding", b"gzip"), UnsupportedMediaError),
    ],
)
def test_an_unacceptable_request_is_refused(header: tuple[bytes, bytes], error: type[Exception]) -> None:
    with pytest.raises(error, match="Content-"):
        Request([header])


def test_identity_is_not_an_encoding() -> None:
    assert Request([(b"content-encoding", b"Identity")]).length is None


def test_names_by_the_thousand_do_not_fill_the_memory() -> None:
    for number in range(3 * 2048):
        Request([(b"x-%d" % number, b"")])
    assert len(requests._kinds) <= 2048


def test_a_long_name_is_not_remembered() -> None:
    """Senders without a token choose the names: 2,048 names of 64 KiB would be 128 MiB."""
    Request([(b"ce-" + b"x" * 1000, b"")])
    Request([(b"x-short", b"")])
    assert b"x-short" in requests._kinds
    assert max(map(len, requests._kinds)) <= 128
