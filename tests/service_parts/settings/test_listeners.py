"""An address to listen on."""

import pytest

from service_parts.settings.listeners import Listener


@pytest.mark.parametrize(
    "text", ["127.0.0.1:5672", "localhost:0", "[::1]:5672", "[fe80::1%eth0]:5671", "0.0.0.0:65535"]
)
def test_an_address_to_listen_on_prints_as_it_is_written(text: str) -> None:
    assert str(Listener.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5672",
        ":5672",
        "localhost",
        "localhost:",
        "::1:5672",
        "[::1]",
        "a:65536",
        "a:-1",
        "a b:1",
        "amqp://a:1",
    ],
)
def test_a_wrong_address_to_listen_on_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Listener.parse(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("0.0.0.0:80", "0.0.0.0", 80), ("[::1]:0", "::1", 0), (" localhost:8080 ", "localhost", 8080)],
)
def test_an_address_is_parsed_and_formatted(text: str, host: str, port: int) -> None:
    listener = Listener.model_validate(text)
    assert (listener.host, listener.port) == (host, port)
    assert str(listener) == text.strip()
