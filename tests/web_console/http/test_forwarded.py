"""What a reverse proxy says of a request."""

import pytest

from web_console.http.forwarded import Origin, inner_path, origin_of

TRUSTED = ("127.0.0.1", "10.0.0.0/8")
HEADERS = {
    "x-forwarded-for": "203.0.113.9, 10.1.1.1",
    "x-forwarded-proto": "https",
    "x-forwarded-prefix": "/node/console/",
}


def origin(peer: str, headers: dict[str, str], *, prefix: str = "") -> Origin:
    return origin_of(peer, "http", headers, trusted=TRUSTED, prefix=prefix)


def test_the_headers_of_a_trusted_proxy_count() -> None:
    assert origin("127.0.0.1", HEADERS) == Origin("203.0.113.9", "https", "/node/console")
    assert origin("", HEADERS) == Origin("203.0.113.9", "https", "/node/console")


def test_the_headers_of_others_do_not_count() -> None:
    assert origin("203.0.113.7", HEADERS, prefix="/set") == Origin("203.0.113.7", "http", "/set")


def test_a_client_cannot_invent_its_address_before_the_proxy() -> None:
    assert origin("10.2.2.2", {"x-forwarded-for": "1.1.1.1, 203.0.113.9"}).client == "203.0.113.9"


def test_a_client_in_a_trusted_network_is_not_the_proxy() -> None:
    assert origin("127.0.0.1", {"x-forwarded-for": "127.0.0.1, 10.3.3.3"}).client == "10.3.3.3"


@pytest.mark.parametrize("prefix", ["//evil.example", "/a b", "/a?b", "x", '/"><script>', "/" + "a" * 65])
def test_a_prefix_that_is_not_a_plain_path_does_not_count(prefix: str) -> None:
    assert origin("127.0.0.1", {"x-forwarded-prefix": prefix}, prefix="/set").prefix == "/set"


def test_a_path_has_the_prefix_once_whether_or_not_the_proxy_removes_it() -> None:
    assert inner_path("/logs", "/console") == "/console/logs"
    assert inner_path("/console/logs", "/console") == "/console/logs"
    assert inner_path("/consoles", "/console") == "/console/consoles"
    assert inner_path("/logs", "") == "/logs"
