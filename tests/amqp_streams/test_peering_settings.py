"""The section `node` of the settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from amqp_streams.peering_settings import PeeringSettings

TLS = {"certificate": "c", "key": "k", "ca": "a"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listen": "127.0.0.1:1"}, "set secret_file, or certificate, key and ca"),
        ({"listen": "127.0.0.1:1", "certificate": "c"}, "needs certificate, key and ca together"),
        ({"listen": "127.0.0.1:1", **TLS, "ca": None}, "needs certificate, key and ca together"),
        ({"listen": "10.0.0.1:1", "secret_file": "s"}, "10.0.0.1 is not a loopback address: set certificate"),
        ({"listen": "0.0.0.0:1", "secret_file": "s"}, "0.0.0.0 is not a loopback address"),
        (
            {"listen": "127.0.0.1:1", "advertise": "a.example:1", "secret_file": "s"},
            "a.example is not a loopback address",
        ),
        ({"listen": "0.0.0.0:1", **TLS}, "other nodes cannot connect to 0.0.0.0: set advertise"),
        ({"listen": "[::]:1", **TLS}, "other nodes cannot connect to ::: set advertise"),
        ({"listen": "0.0.0.0:1", "advertise": "0.0.0.0:1", **TLS}, "not an address to connect to"),
        (
            {"listen": "127.0.0.1:1", "advertise": "127.0.0.1:0", "secret_file": "s"},
            "not an address to connect",
        ),
        ({"listen": "127.0.0.1:1", "advertise": "a b", "secret_file": "s"}, "not a valid address"),
        (
            {"listen": "127.0.0.1:1", "secret_file": "s", "certificate_name": "n"},
            "needs certificate, key and ca",
        ),
        ({"listen": "127.0.0.1:1", **TLS, "certificate_name": ""}, "certificate_name"),
        ({"secret_file": "s"}, "listen"),
        ({"listen": "127.0.0.1:1", "secret": "s"}, "secret"),
    ],
)
def test_settings_that_would_not_be_safe_or_complete_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        PeeringSettings.model_validate(given)
    assert words in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "[::1]", "localhost"])
def test_loopback_needs_a_secret_only(host: str) -> None:
    settings = PeeringSettings.model_validate({"listen": f"{host}:0", "secret_file": "s"})
    assert not settings.tls


def test_other_addresses_use_tls() -> None:
    settings = PeeringSettings.model_validate({"listen": "0.0.0.0:1", "advertise": "a.example:2", **TLS})
    assert settings.tls
    assert settings.advertise == "a.example:2"
