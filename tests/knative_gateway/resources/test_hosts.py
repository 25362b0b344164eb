import pytest

from knative_gateway.resources.hosts import ascii_host, is_dns_name


@pytest.mark.parametrize(
    "host", ["localhost", "host.example.com", "Host.example.", "10.0.0.1", "my_host", "a" * 63]
)
def test_names_of_hosts(host: str) -> None:
    assert is_dns_name(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil/x?",
        "u:p@evil",
        "a b",
        "\ud800",
        "a..b",
        "-a",
        "a" * 64,
        ".".join(["a" * 49] * 6),
        "[::1]",
        "h\n",
        "ß",
    ],
)
def test_a_text_that_would_change_a_url_is_not_a_host(host: str) -> None:
    assert not is_dns_name(host)


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("a.example", "a.example"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%25eth0", "fe80::1%25eth0"),
    ],
)
def test_the_host_of_a_url_is_looked_up_in_ascii(host: str, written: str) -> None:
    assert ascii_host(host) == written


@pytest.mark.parametrize(
    "host",
    ["", "a b", "\u00e9\u00e9\x7f", "a\x00", "::1%a b", ":", "fe80::x", "\u00e9" * 300, "\ud800", "a%41"],
)
def test_a_name_that_cannot_be_resolved_is_not_the_host_of_a_url(host: str) -> None:
    assert ascii_host(host) is None
