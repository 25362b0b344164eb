"""The settings of the login with a provider: only URLs with TLS, of the provider's own hosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.oidc_settings import OidcSettings, checked_url

ISSUER = "https://id.example/realms/main"


def test_the_name_is_the_host_and_the_secret_is_not_shown() -> None:
    settings = OidcSettings(ISSUER, "console", "hidden-secret")
    assert settings.name == "id.example"
    assert "hidden-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "http://id.example"}, "has no TLS"),
        ({"issuer": "id.example"}, "not an https:// URL"),
        ({"issuer": "https://user:pw@id.example"}, "without a user"),
        ({"issuer": "https://id.example?x=1"}, "without a query"),
        ({"client_id": ""}, "a client id is required"),
        ({"scopes": ("profile",)}, "the scope openid"),
        ({"url": "console.example"}, "URL of the console"),
    ],
)
def test_a_setting_that_is_not_valid_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OidcSettings(**{"issuer": ISSUER, "client_id": "console", **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["https://id.example/token", "https://id.example:8443/token?p=1", "https://more.example/keys"]
)
def test_endpoints_of_the_provider_are_used(url: str) -> None:
    assert OidcSettings(ISSUER, "c", hosts=("More.example",)).endpoint(url, "token_endpoint") == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://evil.example/token", "not that of the issuer"),
        ("https://id.example.evil.example/token", "not that of the issuer"),
        ("http://id.example/token", "has no TLS"),
        ("javascript:alert(1)", "not an https:// URL"),
        ("https://id.example@evil.example/", "without a user"),
        ("https://id.example:99999/", "[Pp]ort"),
        ("https://id.example/\n", "not an https:// URL"),
        (None, "does not publish"),
        (5, "does not publish"),
    ],
)
def test_other_endpoints_are_not_used(url: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OidcSettings(ISSUER, "c").endpoint(url, "token_endpoint")


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    try:
        assert checked_url(text, "the issuer").hostname
    except ValueError as error:
        assert str(error)  # noqa: PT017  either is right
