"""Bearer tokens: the messages of RFC 7628 and XOAUTH2, and arbitrary messages of an untrusted peer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.security.bearer import (
    OAUTHBEARER,
    TOKEN_CHARACTERS_MAX,
    XOAUTH2,
    BearerServer,
    is_token,
    oauthbearer_message,
    xoauth2_message,
)
from amqp_streams.wire.security.mechanisms import Challenge, Failure, Success, VerifyToken

BOTH = pytest.mark.parametrize("mechanism", [OAUTHBEARER, XOAUTH2])
RFC = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer"
    b" vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
)


def message(mechanism: str, token: str, user: str = "") -> bytes:
    return (
        oauthbearer_message(token, user, host="node")
        if mechanism == OAUTHBEARER
        else xoauth2_message(token, user)
    )


def test_the_message_of_the_rfc_is_read_and_written() -> None:
    """RFC 7628, section 4.1; its port is one of the pairs that do not matter here."""
    token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    assert BearerServer(OAUTHBEARER).start(RFC) == VerifyToken(token, "user@example.com")
    assert oauthbearer_message(token, "user@example.com", host="server.example.com") == RFC.replace(
        b"port=143\x01", b""
    )
    assert xoauth2_message("abc", "u") == b"user=u\x01auth=Bearer abc\x01\x01"


@BOTH
@given(
    st.from_regex(r"[A-Za-z0-9._~+/-]{1,50}={0,2}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01"), max_size=20),
)
def test_the_server_reads_the_client_s_message(mechanism: str, token: str, user: str) -> None:
    server = BearerServer(mechanism)
    assert server.start(message(mechanism, token, user)) == VerifyToken(token, user or None)
    assert server.claimed == (user or None)


@BOTH
def test_without_an_initial_response_the_server_asks_for_it(mechanism: str) -> None:
    server = BearerServer(mechanism)
    assert server.start(None) == Challenge(b"")
    assert server.respond(message(mechanism, "abc")) == VerifyToken("abc", None)


@BOTH
@pytest.mark.parametrize("user", ["", "alice", "\uff41lice"])
def test_the_owner_of_the_token_is_logged_in(mechanism: str, user: str) -> None:
    server = BearerServer(mechanism)
    server.start(message(mechanism, "abc", user))
    good = Success("alice", groups=frozenset({"ops"}), expires_ms=5)
    assert server.answered(good) == good


def test_a_bad_token_is_reported_in_json_and_fails_whatever_the_client_answers() -> None:
    """RFC 7628, section 3.2.2 and 3.2.3."""
    for answer in (b"\x01", b"", b"n,,\x01auth=Bearer good\x01\x01"):
        server = BearerServer(
            OAUTHBEARER, discovery="https://id.example.org/.well-known/openid-configuration"
        )
        server.start(message(OAUTHBEARER, "abc"))
        challenge = server.answered(Failure("expired"))
        assert isinstance(challenge, Challenge)
        assert json.loads(challenge.data) == {
            "status": "invalid_token",
            "openid-configuration": "https://id.example.org/.well-known/openid-configuration",
        }
        assert server.respond(answer) == Failure("expired")


def test_a_request_without_a_token_learns_where_to_get_one() -> None:
    """RFC 7628, section 4.3."""
    challenge = BearerServer(OAUTHBEARER).start(b"n,,\x01host=node\x01\x01")
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.data) == {"status": "invalid_request"}


def test_in_xoauth2_a_bad_token_fails_at_once() -> None:
    server = BearerServer(XOAUTH2)
    server.start(message(XOAUTH2, "abc"))
    assert server.answered(Failure("expired")) == Failure("expired")


@BOTH
def test_no_user_shows_the_token_of_another(mechanism: str) -> None:
    server = BearerServer(mechanism)
    server.start(message(mechanism, "abc", "bob"))
    step = server.answered(Success("alice"))
    assert isinstance(step, Failure | Challenge)
    last = server.respond(b"\x01") if isinstance(step, Challenge) else step
    assert last == Failure("the token belongs to another user, 'alice'")


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [
        (OAUTHBEARER, b""),
        (OAUTHBEARER, b"\xff"),
        (OAUTHBEARER, b"p=tls-unique,,\x01auth=Bearer abc\x01\x01"),
        (OAUTHBEARER, b"n,a=x\x01auth=Bearer abc\x01\x01"),
        (OAUTHBEARER, b"n,,\x01auth=Bearer abc"),
        (XOAUTH2, b"auth=Bearer abc\x01\x01"),
        (XOAUTH2, b"user=" + b"x" * 256 + b"\x01auth=Bearer abc\x01\x01"),
        (XOAUTH2, b"user=x\x01auth=Basic abc\x01\x01"),
        (XOAUTH2, b"user=x\x01auth=Bearer a b\x01\x01"),
        (XOAUTH2, b"user=x\x01auth=Bearer \x01\x01"),
        (XOAUTH2, b"user=x\x01auth=Bearer " + b"a" * (TOKEN_CHARACTERS_MAX + 1) + b"\x01\x01"),
    ],
)
def test_a_message_that_cannot_be_is_refused(mechanism: str, data: bytes) -> None:
    assert isinstance(BearerServer(mechanism).start(data), Failure)


@BOTH
@given(
    st.binary(max_size=80)
    | st.binary(max_size=40).map(lambda junk: b"n,,\x01auth=Bearer " + junk + b"\x01\x01")
)
def test_arbitrary_messages_raise_nothing(mechanism: str, data: bytes) -> None:
    step = BearerServer(mechanism).start(data)
    # The mechanism has no other question.
    assert isinstance(step, Failure | Challenge) or is_token(step.token)  # type: ignore[union-attr]
