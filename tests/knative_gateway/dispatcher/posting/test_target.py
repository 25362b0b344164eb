"""How a URL becomes a destination."""

import pytest

from knative_gateway.dispatcher.posting.target import Target


@pytest.mark.parametrize(
    ("url", "place", "line", "host"),
    [
        ("http://example.com", ("example.com", 80, False), "/", "example.com"),
        ("https://example.com/a/b?c=d%20e", ("example.com", 443, True), "/a/b?c=d%20e", "example.com"),
        ("http://example.com:8080/ä b", ("example.com", 8080, False), "/%C3%A4%20b", "example.com:8080"),
        ("http://[::1]:81/x#fragment", ("::1", 81, False), "/x", "[::1]:81"),
        ("http://bücher.example/", ("xn--bcher-kva.example", 80, False), "/", "xn--bcher-kva.example"),
    ],
)
def test_a_url_is_taken_apart(url: str, place: tuple[str, int, bool], line: str, host: str) -> None:
    target = Target.of(url)
    assert (target.host, target.port, target.is_tls) == place
    assert target.head.startswith(f"POST {line} HTTP/1.1\r\nHost: {host}\r\n".encode())


def test_credentials_of_a_url_become_a_header() -> None:
    assert b"Authorization: Basic dXNlcjpwYTpzcw==\r\n" in Target.of("http://user:pa%3Ass@example.com/").head


def test_a_path_cannot_become_a_header() -> None:
    assert b"\r\nX:" not in Target.of("http://example.com/a\r\nX: y").head


@pytest.mark.parametrize("url", ["ftp://example.com/", "http:///x", "http://" + "a" * 70 + "ä.example/", "x"])
def test_a_text_that_is_not_a_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the library's own words
        Target.of(url)
