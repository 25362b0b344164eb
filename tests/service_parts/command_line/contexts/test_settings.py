"""A context has no secrets."""

import pytest

from service_parts.command_line.contexts.settings import Kind, Setting, secret_settings, without_password
from service_parts.errors import SettingError

KIND = Kind("sample", "SAMPLE_", "url", (Setting("url", "URL", "The node."), *secret_settings("token")))


def test_names_are_derived_from_the_program() -> None:
    assert (KIND.variable, KIND.address_variable) == ("SAMPLE_CONTEXT", "SAMPLE_URL")
    assert KIND.setting("token_file") is KIND.settings[1]
    assert KIND.setting("tokens") is None
    assert [one.flag for one in KIND.settings] == ["--url", "--token-file", "--token-command"]


@pytest.mark.parametrize(
    "url", ["amqp://h", "amqps://ann@h:5671", "amqp://a,b:1,c", "https://[::1]:8443/x", "amqp://a,amqp://b:1"]
)
def test_a_url_without_a_password_is_stored(url: str) -> None:
    assert without_password(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "amqp://ann:secret@h",
        "amqp://:secret@h",
        "amqp://a,ann:secret@b",
        "amqp://a,amqps://ann:secret@b",
        "ann:secret@h",
    ],
)
def test_a_url_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(SettingError, match="a context stores no secrets") as raised:
        without_password(url)
    assert "secret@" not in str(raised.value)
