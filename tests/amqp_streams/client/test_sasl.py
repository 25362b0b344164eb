"""The client's side of SASL, from bytes alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.client.sasl import HEADER, Credentials, SaslClient
from amqp_streams.wire.codec import Array, Described, Symbol, UByte, ULong, decode, encode

ANN = Credentials("ann", "secret")


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
    ("credentials", "words"), [(ANN, "a user name and a password were given"), (Credentials(), "no user name was given")]
)
def test_nothing_in_common_says_what_is_offered(credentials: Credentials, words: str) -> None:
    with pytest.raises(AuthenticationError, match=f"GSSAPI, and {words}"):
        SaslClient(credentials, None).receive(offer("GSSAPI"))


@pytest.mark.parametrize(("code", "words"), [(1, "wrong user name or password"), (2, "system error"), (9, "refused")])
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
    "answer", [b"HTTP/1.1 400", b"AMQP\x00\x01\x00\x00", HEADER + bytes(8), HEADER + b"\xff" * 8, HEADER + frame(0x40)[:8] + b"\xff" * 5]
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


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(ANN)
