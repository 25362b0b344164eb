"""The credentials of each connection."""

from pathlib import Path

import pytest

from amqp_streams.client.connection.login import credentials_for, is_loopback
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import SaslOptions, TlsOptions

HERE, THERE, SAFE = (
    Address.parse(url) for url in ("amqp://127.0.0.1", "amqp://ann:pw@example.org", "amqps://example.org")
)
CERTIFICATE = TlsOptions(certificate_file=Path("c.pem"))


async def test_a_connection_is_private_over_tls_on_this_machine_and_if_the_option_says_so() -> None:
    for address, options, private in (
        (HERE, SaslOptions(), True),
        (SAFE, SaslOptions(), True),
        (THERE, SaslOptions(), False),
        (THERE, SaslOptions(plain_without_tls=True), True),
    ):
        assert (await credentials_for(address, None, options)).private is private


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost", "LOCALHOST", "a.localhost"])
def test_this_machine_has_several_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "::2", "", "notlocalhost"]
)
def test_other_machines_have_others(host: str) -> None:
    assert not is_loopback(host)


async def test_a_certificate_is_shown_over_tls_only() -> None:
    assert (await credentials_for(SAFE, CERTIFICATE, SaslOptions())).external
    assert not (await credentials_for(HERE, CERTIFICATE, SaslOptions())).external
    assert not (await credentials_for(SAFE, TlsOptions(), SaslOptions())).external


async def test_user_password_and_the_chosen_mechanisms_go_along() -> None:
    made = await credentials_for(THERE, None, SaslOptions(mechanisms=("PLAIN",)))
    assert (made.user, made.password, made.only, made.token) == ("ann", "pw", ("PLAIN",), None)


async def test_a_token_is_asked_for_each_time() -> None:
    tokens = iter(["first", "second", "third"])

    async def later() -> str:
        return next(tokens)

    for options in (SaslOptions(token=lambda: next(tokens)), SaslOptions(token=later)):
        assert (await credentials_for(HERE, None, options)).token in {"first", "second"}
    assert next(tokens) == "third"
    assert (await credentials_for(HERE, None, SaslOptions(token="fixed"))).token == "fixed"
    assert "fixed" not in repr(SaslOptions(token="fixed"))


async def test_a_token_that_cannot_be_had_now_may_be_had_later() -> None:
    def fail() -> str:
        raise OSError(2, "No such file")

    with pytest.raises(ConnectError, match="the token function failed: FileNotFoundError"):
        await credentials_for(HERE, None, SaslOptions(token=fail))


@pytest.mark.parametrize("token", ["", "two words", "line\n", "ü", "x" * 20_000])
async def test_a_text_that_cannot_be_a_token_is_not_sent_and_not_shown(token: str) -> None:
    with pytest.raises(ConnectError, match="the token is not valid") as caught:
        await credentials_for(HERE, None, SaslOptions(token=token))
    assert not token or token not in str(caught.value)
