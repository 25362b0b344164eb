"""URLs of nodes."""

import pytest

from amqp_streams.client.connection.address import Address


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
