"""Which mechanism is chosen, and that secrets are only sent over private connections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.errors import AuthenticationError

ALL = ["EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "ANONYMOUS"]
credentials = st.builds(
    Credentials,
    st.none() | st.just("ann"),
    st.none() | st.just("sesame"),
    st.booleans(),
    st.none() | st.just("t0ken"),
    private=st.booleans(),
    only=st.none() | st.lists(st.sampled_from(ALL), max_size=3).map(tuple),
)


@given(credentials, st.lists(st.sampled_from([*ALL, "GSSAPI", "CRAM-MD5"]), unique=True))
def test_the_chosen_mechanism_was_offered_and_shows_no_secret_to_an_unknown_server(
    who: Credentials, offered: list[str]
) -> None:
    try:
        name, mechanism = who.choose(offered)
    except AuthenticationError as error:
        assert "sesame" not in str(error)  # noqa: PT017  either is right
        assert "t0ken" not in str(error)  # noqa: PT017
        return
    assert name in offered
    assert who.only is None or name in who.only
    message = mechanism.initial()
    assert who.private or not (b"sesame" in message or b"t0ken" in message)


def test_where_others_may_listen_a_password_is_proved_and_not_shown() -> None:
    who = Credentials("ann", "sesame", private=False)
    assert who.choose(ALL)[0] == "SCRAM-SHA-512"
    with pytest.raises(AuthenticationError, match="PLAIN would send the password unencrypted: use amqps"):
        who.choose(["PLAIN", "ANONYMOUS"])
    with pytest.raises(AuthenticationError, match="OAUTHBEARER would send the token"):
        Credentials(token="t0ken", private=False).choose(ALL)


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (Credentials(token="t0ken"), "the peer offers GSSAPI, and a token was given"),
        (
            Credentials("ann", only=("PLAIN", "EXTERNAL")),
            "offers GSSAPI, and a user name and a password with mechanism PLAIN or EXTERNAL were",
        ),
        (Credentials(only=("PLAIN",)), "offers GSSAPI, and no user name with mechanism PLAIN was given"),
    ],
)
def test_no_common_mechanism_is_reported_with_the_given_credentials(who: Credentials, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words):
        who.choose(["GSSAPI"])
