"""Which values a Host header may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.host import is_host, is_out_of_reach

VALID = (
    b"",
    b"h",
    b"h:80",
    b"h:",
    b"broker-ingress.knative-eventing.svc.cluster.local",
    b"a_b.example:8080",
    b"127.0.0.1:0",
    b"[::1]",
    b"[::1]:8080",
    b"[::ffff:127.0.0.1]:1",
    b"[fe80::1%25eth0]",
    b"[v7.a:b]",
    b"%41.example",
    b" h\t",
    b"a!$&'()*+,;=~",
)
INVALID = (
    b"a b@c",
    b"a b",
    b"user@h",
    b"h/path",
    b"h?x",
    b"h#x",
    b"http://h",
    b"h:80:80",
    b"h:x",
    b"h:-1",
    b"[::1",
    b"::1",
    b"[h]",
    b"[1::2::3]",
    b"[::1]x",
    b"[fe80::1%eth0]",
    b"%4",
    b"%zz",
    b"h\\x",
    b'"h"',
    b"<h>",
    b"h\x00",
    b"h\n",
    b"h\x7f",
    b"\xc3\xa9",
    b"\xe9",
)


@pytest.mark.parametrize("value", VALID)
def test_a_name_or_an_address_with_or_without_a_port_is_valid(value: bytes) -> None:
    assert is_host(value)


@pytest.mark.parametrize("value", INVALID)
def test_everything_else_is_not_valid(value: bytes) -> None:
    assert not is_host(value)


@given(st.binary(max_size=40))
def test_no_valid_value_has_a_byte_that_ends_a_host_in_a_url(value: bytes) -> None:
    """Then a proxy and the gateway read the same host."""
    if is_host(value):
        assert not set(value.strip(b" \t")) & set(b' \t\r\n\x00/?#@\\<>"^`{|}')
        assert value.isascii()


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "a.localhost",
        "127.0.0.1",
        "127.0.0.1:8080",
        "10.1.2.3:1",
        "[::1]:8080",
        "[::1]",
        "[fe80::1%25eth0]:80",
        "laptop:8080",
        "broker-ingress.knative-eventing.svc",
        "broker-ingress.knative-eventing.svc.cluster.local:80",
    ],
)
def test_no_site_has_these_names(host: str) -> None:
    assert is_out_of_reach(host.encode())


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "svc.example",
        "a.b.",
        "1.2.3",
    ],
)
def test_a_site_may_have_these_names(host: str) -> None:
    assert not is_out_of_reach(host.encode())
