"""The allowed and the denied destinations of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.errors import ConfigError
from knative_gateway.security.destinations import Destinations, literal

DEFAULT = Destinations.parse()


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:ffa9:fe:a9fe::",
        "64:ff9b:1:ffff:a9:fea9:fe00::",
        "::169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "255.255.255.255",
    ],
)
def test_link_local_and_metadata_addresses_are_denied_by_default_in_every_spelling(address: str) -> None:
    assert DEFAULT.refusal("innocent.example.com", address) is not None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "192.168.0.1",
        "93.184.216.34",
        "2606:2800:220:1::1",
        "64:ff9b:1::5db8:d822",
    ],
)
def test_an_operation_that_no_rule_denies_is_allowed(address: str) -> None:
    assert DEFAULT.refusal("example.com", address) is None


def test_denied_names_are_denied_wherever_they_are() -> None:
    rules = Destinations.parse(deny=["*.internal", "Metadata.Example."])
    assert rules.refusal("db.INTERNAL.", "93.184.216.34") is not None
    assert rules.refusal("metadata.example", "93.184.216.34") is not None
    assert rules.refusal("internal.example", "93.184.216.34") is None


def test_with_allowed_ones_nothing_else_is() -> None:
    rules = Destinations.parse(allow=["10.0.0.0/8", "*.example.com"])
    assert rules.refusal("whatever.net", "10.9.9.9") is None
    assert rules.refusal("hooks.example.com", "93.184.216.34") is None
    assert rules.refusal("whatever.net", "93.184.216.34") is not None
    assert rules.refusal("whatever.net", "::ffff:10.0.0.1") is None
    assert "not allowed" in str(rules.refusal("::1", "::1"))
    assert rules.refusal("whatever.net", "64:ff9b:1::10.0.0.1") is None
    assert rules.refusal("whatever.net", "64:ff9b:1:5db8:d8:2200:10.0.0.1") is not None


def test_deny_wins_over_allow() -> None:
    rules = Destinations.parse(allow=["*.example.com", "169.254.0.0/16"])
    assert "denied" in str(rules.refusal("rebound.example.com", "169.254.169.254"))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_within_an_ipv6_one_is_judged_as_itself(address: object) -> None:
    """In any notation, packets arrive at the same machine."""
    plain = DEFAULT.refusal("h", str(address)) is None
    assert (DEFAULT.refusal("h", f"::ffff:{address}") is None) == plain
    assert (DEFAULT.refusal("h", f"64:ff9b::{address}") is None) == plain


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://example.com/x", True),
        ("https://example.com:8443", True),
        ("http://[::1]:80/", True),
        ("http://169.254.169.254/latest/meta-data", False),
        ("http://[::ffff:169.254.169.254]/", False),
        ("http://metadata.google.internal/computeMetadata", False),
        ("http://2852039166/latest/meta-data", False),
        ("http://169.16689662/", False),
        ("ftp://example.com", False),
        ("file:///etc/passwd", False),
        ("http:///nowhere", False),
        ("http://example.com:port/", False),
        ("http://[::1", False),
    ],
)
def test_urls_that_cannot_be_destinations_are_refused_before_a_connection_is_made(
    url: str, allowed: bool
) -> None:
    assert (DEFAULT.refusal_of_url(url) is None) == allowed


@pytest.mark.parametrize("entry", ["", "10.0.0.0/33", "http://x", "two words"])
def test_an_entry_that_is_neither_network_nor_name_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError):
        Destinations.parse(deny=[entry])


def test_addresses_are_distinguished_from_names() -> None:
    assert literal("10.0.0.1")
    assert literal("fe80::1%eth0")
    assert not literal("2130706433")
    assert not literal("localhost")


def test_the_connected_address_is_checked_once_more() -> None:
    assert DEFAULT.refusal_of_address("127.0.0.1") is None
    assert DEFAULT.refusal_of_address("::ffff:169.254.169.254") is not None
    assert DEFAULT.refusal_of_address("2852039166") is not None
