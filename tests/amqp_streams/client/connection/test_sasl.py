"""The client's side of SASL, from bytes alone."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.sasl import HEADER, SaslClient
from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.wire.codec import Array, Described, Symbol, UByte, ULong, decode, encode
from amqp_streams.wire.security.bearer import BearerServer
from amqp_streams.wire.security.mechanisms import (
    Failure,
    FindKeys,
    Mechanism,
    ScramAlgorithm,
    Success,
    VerifyToken,
)
from amqp_streams.wire.security.sasl import Authenticated, Failed, SaslServer, Send
from amqp_streams.wire.security.scram import ScramServer, make_keys, unmeetable_keys

ANN = Credentials("ann", "secret")
SCRAM = Credentials("ann", "secret", nonce=lambda: "nonce")
TOKEN = Credentials(token="t.o.k")


def frame(code: int, *fields: object) -> bytes:
    body = encode(Described(ULong(code), list(fields)))  # type: ignore[arg-type]  # any value
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


def offer(*mechanisms: str) -> bytes:
    return HEADER + frame(0x40, Array(Symbol, tuple(map(Symbol, mechanisms))))


def init(client: SaslClient) -> list[object]:
    value, _ = decode(client.take_output()[8:])
    assert isinstance(value, Described)
    assert value.descriptor == 0x41
    assert isinstance(value.value, list)
    return list(value.value)


def test_the_header_goes_first_and_nothing_else_before_the_offer() -> None:
    client = SaslClient(ANN, "h")
    assert client.take_output() == HEADER
    assert client.take_output() == b""


@pytest.mark.parametrize(
    ("credentials", "offered", "chosen", "response"),
    [
        (SCRAM, ("ANONYMOUS", "PLAIN", "SCRAM-SHA-256"), "SCRAM-SHA-256", b"n,,n=ann,r=nonce"),
        (
            SCRAM,
            ("SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
            "SCRAM-SHA-512",
            b"n,,n=ann,r=nonce",
        ),
        (
            Credentials("a,n=n", "x", nonce=lambda: "nonce"),
            ("SCRAM-SHA-256",),
            "SCRAM-SHA-256",
            b"n,,n=a=2Cn=3Dn,r=nonce",
        ),
        (
            Credentials("ann", "secret", only=("PLAIN",)),
            ("SCRAM-SHA-512", "PLAIN"),
            "PLAIN",
            b"\0ann\0secret",
        ),
        (Credentials("ann", external=True), ("PLAIN", "EXTERNAL"), "EXTERNAL", b"ann"),
        (
            TOKEN,
            ("XOAUTH2", "OAUTHBEARER", "PLAIN"),
            "OAUTHBEARER",
            b"n,,\x01host=host\x01auth=Bearer t.o.k\x01\x01",
        ),
        (TOKEN, ("PLAIN", "XOAUTH2"), "XOAUTH2", b"user=\x01auth=Bearer t.o.k\x01\x01"),
        (ANN, ("ANONYMOUS", "PLAIN"), "PLAIN", b"\0ann\0secret"),
        (Credentials("ünï", "pæss"), ("PLAIN",), "PLAIN", "\0ünï\0pæss".encode()),
        (Credentials("ann", None), ("PLAIN",), "PLAIN", b"\0ann\0"),
        (Credentials(), ("PLAIN", "ANONYMOUS"), "ANONYMOUS", b"anonymous"),
        (Credentials(external=True), ("ANONYMOUS", "EXTERNAL"), "EXTERNAL", b""),
        (Credentials(external=True), ("ANONYMOUS",), "ANONYMOUS", b"anonymous"),
    ],
)
def test_the_best_mechanism_that_both_have_is_chosen(
    credentials: Credentials, offered: tuple[str, ...], chosen: str, response: bytes
) -> None:
    client = SaslClient(credentials, "host")
    client.take_output()
    client.receive(offer(*offered))
    assert init(client) == [chosen, response, "host"]


def test_one_mechanism_may_be_offered_without_an_array() -> None:
    client = SaslClient(ANN, None)
    client.take_output()
    client.receive(HEADER + frame(0x40, Symbol("PLAIN")))
    assert init(client)[0] == "PLAIN"


@pytest.mark.parametrize(
    ("credentials", "words"),
    [(ANN, "a user name and a password were given"), (Credentials(), "no user name was given")],
)
def test_nothing_in_common_says_what_is_offered(credentials: Credentials, words: str) -> None:
    with pytest.raises(AuthenticationError, match=f"GSSAPI, and {words}"):
        SaslClient(credentials, None).receive(offer("GSSAPI"))


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "wrong user name or password"), (2, "system error"), (3, "permanent"), (9, "refused")],
)
def test_a_bad_outcome_is_an_authentication_error(code: int, words: str) -> None:
    client = SaslClient(ANN, None)
    client.receive(offer("PLAIN"))
    with pytest.raises(AuthenticationError, match=words):
        client.receive(frame(0x44, UByte(code)))
    assert not client.done


def test_a_challenge_is_more_than_these_mechanisms_know() -> None:
    client = SaslClient(ANN, None)
    with pytest.raises(AuthenticationError):
        client.receive(offer("PLAIN") + frame(0x42, b"?"))


@given(st.integers(1, 60))
def test_bytes_in_pieces_end_the_same_and_what_follows_is_kept(piece: int) -> None:
    client = SaslClient(ANN, None)
    stream = offer("PLAIN") + frame(0x44, UByte(0)) + b"AMQP\0\1\0\0rest"
    for at in range(0, len(stream), piece):
        client.receive(stream[at : at + piece])
    assert client.done
    assert client.rest == b"AMQP\0\1\0\0rest"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400",
        b"AMQP\x00\x01\x00\x00",
        HEADER + bytes(8),
        HEADER + b"\xff" * 8,
        HEADER + frame(0x40)[:8] + b"\xff" * 5,
    ],
)
def test_another_protocol_is_a_connect_error(answer: bytes) -> None:
    with pytest.raises(ConnectError):
        SaslClient(ANN, None).receive(answer)


@given(st.binary(max_size=100))
def test_garbage_is_a_connect_error_or_waited_for(garbage: bytes) -> None:
    client = SaslClient(ANN, None)
    try:
        client.receive(HEADER + garbage)
    except ConnectError:
        return
    assert not client.done


def test_a_password_and_a_token_are_not_shown() -> None:
    assert "secret" not in repr(ANN)
    assert "t.o.k" not in repr(TOKEN)


def test_a_peer_that_has_no_answer_yet_is_asked_again_later() -> None:
    """The error is not an AuthenticationError, which is not retried."""
    client = SaslClient(ANN, None)
    client.receive(offer("PLAIN"))
    with pytest.raises(ConnectError, match="try again later") as caught:
        client.receive(frame(0x44, UByte(4)))
    assert not isinstance(caught.value, AuthenticationError)


@pytest.mark.parametrize("credentials", [ANN, SCRAM, TOKEN, Credentials()])
@pytest.mark.parametrize("early", [frame(0x44, UByte(0)), frame(0x42, b"x"), frame(0x43, b"x")])
def test_an_outcome_before_the_client_s_init_is_an_error(credentials: Credentials, early: bytes) -> None:
    client = SaslClient(credentials, None)
    with pytest.raises(ConnectError, match="not expected"):
        client.receive(HEADER + early)
    assert not client.done


def test_a_peer_that_challenges_without_end_is_left() -> None:
    client = SaslClient(TOKEN, None)
    client.receive(offer("OAUTHBEARER"))
    with pytest.raises(ConnectError):
        client.receive(frame(0x42, b"{}") * 20)


def test_a_server_that_does_not_prove_itself_is_not_trusted() -> None:
    """A server that accepts every proof is not a SCRAM server."""
    for proof in ([], [b""], [b"v=AAAA"], [None]):
        client = SaslClient(SCRAM, None)
        client.receive(offer("SCRAM-SHA-256") + frame(0x42, b"r=nonceours,s=QQ==,i=4096"))
        with pytest.raises(AuthenticationError, match=r"did not prove|not a list"):
            client.receive(frame(0x44, UByte(0), *proof))
        assert not client.done
    client = SaslClient(SCRAM, None)
    client.receive(offer("SCRAM-SHA-256"))
    with pytest.raises(AuthenticationError):
        client.receive(frame(0x44, UByte(0), b"v=AAAA"))


KEYS = {one: make_keys(one, "ann", "secret", salt=b"salt", iterations=4096) for one in ScramAlgorithm}


def converse(
    client: SaslClient, mechanisms: dict[str, Callable[[], Mechanism]], piece: int = 1 << 20
) -> Authenticated | Failed:
    """Our client and our server, byte for byte; how it ends for the server."""
    server = SaslServer(mechanisms)
    while True:
        data, todo = client.take_output(), []
        assert data, "nobody has anything to say"
        for at in range(0, len(data), piece):
            todo += server.feed(data[at : at + piece])
        while todo:
            match todo.pop(0):
                case Send(said):
                    for at in range(0, len(said), piece):
                        client.receive(said[at : at + piece])
                case FindKeys(user, algorithm):
                    keys = KEYS[algorithm]
                    lure = unmeetable_keys(algorithm, user, secret=b"", iterations=4096)
                    todo += server.answer(keys if user == "ann" else lure)
                case VerifyToken(token):
                    todo += server.answer(Success("ann") if token == "t.o.k" else Failure("expired"))
                case Authenticated() | Failed() as end:
                    return end


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("algorithm", ScramAlgorithm)
def test_scram_with_our_server_ends_well_for_the_right_password_only(
    algorithm: ScramAlgorithm, piece: int
) -> None:
    offered: dict[str, Callable[[], Mechanism]] = {
        str(algorithm): lambda: ScramServer(algorithm, nonce="server")
    }
    client = SaslClient(Credentials("ann", "secret"), None)
    end = converse(client, offered, piece)
    assert isinstance(end, Authenticated)
    assert (end.user, end.mechanism, client.done) == ("ann", algorithm, True)
    for credentials in (Credentials("ann", "wrong"), Credentials("bob", "secret")):
        with pytest.raises(AuthenticationError, match="wrong user name or password"):
            converse(SaslClient(credentials, None), offered, piece)


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [("OAUTHBEARER", "refused the token: invalid_token"), ("XOAUTH2", "refused the token")],
)
def test_a_token_with_our_server_is_good_or_said_not_to_be(mechanism: str, words: str) -> None:
    offered: dict[str, Callable[[], Mechanism]] = {mechanism: lambda: BearerServer(mechanism)}
    client = SaslClient(TOKEN, "host")
    assert isinstance(converse(client, offered), Authenticated)
    assert client.done
    with pytest.raises(AuthenticationError, match=words):
        converse(SaslClient(Credentials(token="other"), None), offered)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1", "the server there speaks HTTP, not AMQP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the server there speaks TLS: the scheme is amqps:// or wss://"),
        (b"SSH-2.0-OpenSSH", "the server there does not speak AMQP 1.0: it answered b'SSH-2.0-'"),
    ],
)
def test_a_peer_that_does_not_speak_amqp_is_named(answer: bytes, words: str) -> None:
    with pytest.raises(ConnectError, match=re.escape(words)):
        SaslClient(ANN, None).receive(answer)
