import pytest

from knative_gateway.resources.hosts import is_dns_name


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
def test_what_would_change_a_url_is_not_one(host: str) -> None:
    assert not is_dns_name(host)
