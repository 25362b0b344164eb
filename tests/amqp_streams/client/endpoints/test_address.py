"""URLs of nodes, and lists of them."""

from dataclasses import replace

import pytest

from amqp_streams.client.endpoints.address import Address, parse_all


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://host", Address("amqp", "host", 5672)),
        ("amqps://host", Address("amqps", "host", 5671)),
        ("amqp://host:1234", Address("amqp", "host", 1234)),
        ("host:1234", Address("amqp", "host", 1234)),
        ("amqp://[::1]:5", Address("amqp", "::1", 5)),
        ("ws://host", Address("ws", "host", 80)),
        ("wss://host/amqp?a=b", Address("wss", "host", 443, "/amqp?a=b")),
        ("amqp://ann:pa%2Fss%40@host", Address("amqp", "host", 5672, user="ann", password="pa/ss@")),
        ("amqp://ann@host", Address("amqp", "host", 5672, user="ann")),
    ],
)
def test_urls_are_read(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize(
    "url", ["http://host", "amqp://", "amqp://host:0x", "amqp://host:99999", "", "amqp://:5672"]
)
def test_a_text_that_is_not_a_url_of_a_node_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"has no host|the port in|not one of"):
        Address.parse(url)


def test_it_is_shown_without_user_and_password() -> None:
    address = Address.parse("wss://ann:secret@[::1]:8/amqp")
    assert str(address) == "wss://[::1]:8/amqp"
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    ("url", "secure", "websocket"),
    [
        ("amqp://h", False, False),
        ("amqps://h", True, False),
        ("ws://h", False, True),
        ("wss://h", True, True),
    ],
)
def test_the_scheme_says_what_is_below(url: str, secure: bool, websocket: bool) -> None:
    address = Address.parse(url)
    assert (address.secure, address.websocket) == (secure, websocket)


@pytest.mark.parametrize(
    ("endpoints", "shown"),
    [
        ("amqp://a", ["amqp://a:5672"]),
        ("amqp://a,b, c:7", ["amqp://a:5672", "amqp://b:5672", "amqp://c:7"]),
        ("amqps://a,b:1,amqp://c,d", ["amqps://a:5671", "amqps://b:1", "amqp://c:5672", "amqp://d:5672"]),
        ("a,amqp://a:5672,b", ["amqp://a:5672", "amqp://b:5672"]),
        (["amqps://a", "b"], ["amqps://a:5671", "amqps://b:5671"]),
        (("amqp://a,b", "amqp://c"), ["amqp://a:5672", "amqp://b:5672", "amqp://c:5672"]),
        ("wss://a/x,wss://b/y", ["wss://a:443/x", "wss://b:443/y"]),
        ("amqp://[::1]:5,[::2]", ["amqp://[::1]:5", "amqp://[::2]:5672"]),
    ],
)
def test_a_list_is_read_in_every_form(endpoints: str | list[str], shown: list[str]) -> None:
    assert list(map(str, parse_all(endpoints))) == shown


def test_a_part_without_a_scheme_has_the_scheme_and_login_of_the_part_before() -> None:
    first, second, third = parse_all("amqps://ann:a%2Cb@one,two,amqp://three")
    assert (first.user, first.password) == (second.user, second.password) == ("ann", "a,b")
    assert (second.scheme, third.scheme, third.user, third.password) == ("amqps", "amqp", None, None)


@pytest.mark.parametrize(
    ("endpoints", "words"),
    [
        ("amqp://a,", "an endpoint is empty"),
        ("amqp://a,,b", "an endpoint is empty"),
        ("amqp://a,b:x", "the port"),
        ("amqp://a,http://b", "not one of"),
        ("amqp://ann@h,bob:S3CRET@b", "%2C"),
        ("amqp://ann:S3CRET,more@b", "the port|%2C"),
        ([], "the list of endpoints is empty"),
    ],
)
def test_a_part_that_is_not_valid_is_refused_without_its_text(endpoints: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        parse_all(endpoints)
    assert "S3CRET" not in str(refused.value)


def test_the_ip_of_a_name_is_shown_but_not_part_of_the_url() -> None:
    address = replace(Address.parse("amqp://ann:x@host"), ip="10.0.0.3")
    assert (str(address), address.url) == ("amqp://host:5672 (10.0.0.3)", "amqp://host:5672")
