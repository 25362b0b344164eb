"""Settings are validated when they are created."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from knative_gateway.config import GatewaySettings, Limits


def test_everything_has_a_default() -> None:
    settings = GatewaySettings()
    assert [str(one) for one in settings.listen] == ["127.0.0.1:8080"]
    assert str(settings.amqp_listen) == "127.0.0.1:0"
    assert settings.state_dir == Path("knative-gateway-state")
    assert settings.limits.body == 1 << 20


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": ["8080"]},
        {"listen": ["a:99999"]},
        {"listen": []},
        {"amqp": "http://x"},
        {"amqp": "amqp://x", "amqp_listen": "127.0.0.1:0"},
        {"public_url": "ftp://x"},
        {"public_url": "http://x?y"},
        {"public_url": "http://user:secret@x"},
        {"logs": {"retention": float("inf")}},
        {"logs": {"retention": 1e300}},
        {"logs": {"retention": 0.9}},
        {"subscribers": {"timeout": float("nan")}},
        {"tls": {"certificate": "c"}},
        {"limits": {"body": "1KB"}},
        {"limits": {"drain": 0}},
        {"console": {}},
        {"console": {"listen": "127.0.0.1:0", "url": "amqp://x"}},
        {"console": {"listen": "127.0.0.1:0", "url": "http://user:secret@x"}},
        {"console": {"listen": "127.0.0.1:0", "trusted_proxies": "proxy.example"}},
        {"console": {"listen": "127.0.0.1:0"}, "tls": {"certificate": "c", "key": "k"}},
        {"unknown": 1},
    ],
)
def test_invalid_values_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GatewaySettings.model_validate(settings)


def test_the_console_of_a_gateway_with_tls_needs_a_url() -> None:
    tls = {"certificate": "c", "key": "k"}
    console = {"listen": "127.0.0.1:0", "url": "https://gateway.example"}
    assert GatewaySettings.model_validate({"tls": tls, "console": console}).console is not None


def test_sizes_have_units() -> None:
    assert Limits.model_validate({"body": "2MiB"}).body == 2 << 20
