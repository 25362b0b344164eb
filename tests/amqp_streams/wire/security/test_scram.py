"""SCRAM: the conversations of the RFCs, both sides with each other, and arbitrary messages of an untrusted
peer.
"""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.security.mechanisms import (
    Challenge,
    Failure,
    FindKeys,
    ScramAlgorithm,
    ScramKeys,
    Step,
    Success,
)
from amqp_streams.wire.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramClient,
    ScramError,
    ScramServer,
    format_keys,
    make_keys,
    parse_keys,
    salted_password,
    unmeetable_keys,
)

SHA_256, SHA_512 = ScramAlgorithm.SHA_256, ScramAlgorithm.SHA_512
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
KEYS = {
    algorithm: make_keys(algorithm, "user", "pencil", salt=SALT, iterations=4096)
    for algorithm in ScramAlgorithm
}
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def talk(server: ScramServer, client: ScramClient, keys: ScramKeys) -> Step:
    """Carry out a whole dialogue, and return the server's last message."""
    step = server.start(client.first())
    if isinstance(step, FindKeys):
        step = server.answered(keys)
    if not isinstance(step, Challenge):
        return step
    step = server.respond(client.final(step.data))
    if isinstance(step, Success):
        client.finish(step.data or b"")
    return step


def test_the_example_of_rfc_7677_comes_out_word_by_word() -> None:
    """RFC 7677, section 3."""
    client = ScramClient(SHA_256, "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    server = ScramServer(SHA_256, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert server.start(client.first()) == FindKeys("user", SHA_256)
    challenge = server.answered(KEYS[SHA_256])
    assert challenge == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(challenge.data)
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + proof
    assert server.respond(final) == Success("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    client.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert client.complete


def test_the_salted_password_is_the_one_of_rfc_5802_where_the_hash_is_replaced() -> None:
    """RFC 5802, section 2.2: Hi() is PBKDF2 with HMAC. Written out here, as the RFC writes it."""
    block = hmac.digest(b"pencil", SALT + b"\0\0\0\1", "sha512")
    total = int.from_bytes(block)
    for _ in range(4095):
        block = hmac.digest(b"pencil", block, "sha512")
        total ^= int.from_bytes(block)
    assert salted_password(SHA_512, "pencil", SALT, 4096) == total.to_bytes(64)
    client_key = hmac.digest(total.to_bytes(64), b"Client Key", "sha512")
    assert KEYS[SHA_512].stored_key == hashlib.sha512(client_key).digest()


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
@pytest.mark.parametrize("password", ["pencil", "pencilx", "Pencil", "ünï cöde", "=,", ""])
def test_only_the_right_password_gets_through(algorithm: ScramAlgorithm, password: str) -> None:
    client = ScramClient(algorithm, "user", password, nonce="abc")
    step = talk(ScramServer(algorithm, nonce="def"), client, KEYS[algorithm])
    assert isinstance(step, Success) is client.complete is (password == "pencil")
    assert isinstance(step, Success) or step == Failure("wrong user or password")


@given(names, st.sampled_from(ScramAlgorithm))
def test_any_name_arrives_as_it_is_kept(name: str, algorithm: ScramAlgorithm) -> None:
    """Commas and equals signs are escaped in transfer."""
    keys = ScramKeys(name, SALT, 4096, KEYS[algorithm].stored_key, KEYS[algorithm].server_key)
    client = ScramClient(algorithm, name, "pencil", nonce="abc")
    server = ScramServer(algorithm, nonce="def")
    assert isinstance(talk(server, client, keys), Success | Failure)
    if name.isascii() and name.isprintable():
        assert server.claimed == name
        assert client.complete


def test_a_password_typed_in_another_form_is_the_same_password() -> None:
    """RFC 5802, section 5.1: passwords are prepared with SASLprep."""
    keys = make_keys(SHA_256, "user", "IX", salt=SALT, iterations=4096)
    client = ScramClient(SHA_256, "user", "\u2168", nonce="abc")
    assert isinstance(talk(ScramServer(SHA_256, nonce="def"), client, keys), Success)


def test_without_an_initial_response_the_server_asks_for_the_first_message() -> None:
    server = ScramServer(SHA_256, nonce="def")
    assert server.start(None) == Challenge(b"")
    assert server.respond(b"n,,n=user,r=abc") == FindKeys("user", SHA_256)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"p=tls-unique,,n=user,r=abc", "the client requires channel binding, which is not offered"),
        (b"p=tls-exporter,a=user,n=user,r=abc", "the client requires channel binding, which is not offered"),
        (b"x,,n=user,r=abc", "the message has no GS2 header"),
        (b"n,b=x,n=user,r=abc", "the message has no GS2 header"),
        (b"n=user,r=abc", "the message has too few parts"),
        (b"n=user,r=abc,x=y", "the message has no GS2 header"),
        (b"", "the message has too few parts"),
        (b"n,,m=ext,n=user,r=abc", "the message does not begin with a user and a nonce"),
        (b"n,,r=abc,n=user", "the message does not begin with a user and a nonce"),
        (b"n,,n=user", "the message does not begin with a user and a nonce"),
        (b"n,,n=,r=abc", "the user name is empty"),
        (b"n,,n=user,r=", "the nonce is not valid"),
        (b"n,,n=user,r=a c", "the nonce is not valid"),
        (b"n,,n=user,r=" + b"x" * 2000, "the nonce is not valid"),
        (b"n,,n=us=er,r=abc", "the user name has a lone equals sign"),
        (b"n,,n=us=2cer,r=abc", "the user name has a lone equals sign"),
        (b"n,a=other,n=user,r=abc", "a user cannot act for another user"),
        (b"n,,n=user,r=abc,=x", "the message is not a list of attributes"),
        (b"n,,n=us\0er,r=abc", "the message is not a list of attributes"),
        (b"n,,n=\xff,r=abc", "the message is not UTF-8"),
        (b"n,,n=" + b"x" * 256 + b",r=abc", "the user name has more than 255 characters"),
        (b"n,a=" + b"x" * 256 + b",n=x,r=abc", "the user name has more than 255 characters"),
    ],
)
def test_a_first_message_that_cannot_be_is_refused(first: bytes, words: str) -> None:
    assert ScramServer(SHA_256, nonce="def").start(first) == Failure(words)


@pytest.mark.parametrize(
    "first", [b"n,,n=user,r=abc", b"y,,n=user,r=abc", b"n,a=user,n=user,r=abc", b"n,,n=user,r=abc,x=future"]
)
def test_the_gs2_header_is_bound_into_the_proof(first: bytes) -> None:
    """`y`: the client could bind and thinks that we cannot, which is so. Section 6."""
    header = base64.b64encode(first[: first.index(b"n=user")])
    for binding, good in ((header, True), (b"cD10bHMtdW5pcXVlLCw=", False), (b"", False), (b"*", False)):
        server = ScramServer(SHA_256, nonce="def")
        server.start(first)
        challenge = server.answered(KEYS[SHA_256])
        assert isinstance(challenge, Challenge)
        without_proof = b"c=" + binding + b",r=abcdef"
        salted = salted_password(SHA_256, "pencil", SALT, 4096)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        said = first[first.index(b"n=user") :] + b"," + challenge.data + b"," + without_proof
        signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
        proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True)))
        assert isinstance(server.respond(without_proof + b",p=" + proof), Success) is good


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"c=biws,r=abcdef",
        b"c=biws,r=abcdef,p=",
        b"c=biws,r=abcdef,p=AAAA",
        b"c=biws,r=abcdeX,p=AAAA",
        b"r=abcdef,c=biws,p=AA",
        b"c=biws,r=abcdef,p=\xff",
        b"c=biws,r=abcdef,p=" + base64.b64encode(bytes(32)),
    ],
)
def test_a_final_message_without_the_right_proof_is_refused(final: bytes) -> None:
    server = ScramServer(SHA_256, nonce="def")
    server.start(b"n,,n=user,r=abc")
    server.answered(KEYS[SHA_256])
    assert isinstance(server.respond(final), Failure)


@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from([b"n,,n=user,r=abc", b"c=biws,r=abcdef,p=AAAA"]), max_size=4
    )
)
def test_arbitrary_messages_raise_nothing_and_admit_no_client(messages: list[bytes]) -> None:
    server = ScramServer(SHA_256, nonce="def")
    step: Step = server.start(None)
    for message in messages:
        if not isinstance(step, Challenge):
            break
        step = server.respond(message)
        if isinstance(step, FindKeys):
            step = server.answered(KEYS[SHA_256])
    assert not isinstance(step, Success)


# -- keys


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
def test_keys_are_read_as_they_were_written(algorithm: ScramAlgorithm) -> None:
    text = format_keys(algorithm, KEYS[algorithm])
    assert text.startswith(f"{algorithm}$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert parse_keys(algorithm, "user", text) == KEYS[algorithm]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SHA-256", "SHA-512"),
        ("4096", "4095"),
        ("4096", str(ITERATIONS_MAX + 1)),
        ("4096", "x"),
        ("4096", "99999999999"),
        ("W22", "*"),
        ("==$", "==:"),
        ("$", ""),
        (":", ""),
    ],
)
def test_keys_that_cannot_be_are_refused(old: str, new: str) -> None:
    with pytest.raises(ValueError, match="not valid keys of SCRAM-SHA-256"):
        parse_keys(SHA_256, "user", format_keys(SHA_256, KEYS[SHA_256]).replace(old, new))


@pytest.mark.parametrize("algorithm", ScramAlgorithm)
def test_keys_of_an_unknown_user_look_like_keys_and_stay_the_same(algorithm: ScramAlgorithm) -> None:
    """Two logins as an unknown user get the same salt, as with a known user."""
    made = unmeetable_keys(algorithm, "nobody", secret=b"ours", iterations=4096)
    assert made == unmeetable_keys(algorithm, "nobody", secret=b"ours", iterations=4096)
    assert parse_keys(algorithm, "nobody", format_keys(algorithm, made)) == made
    others = [unmeetable_keys(algorithm, "somebody", secret=b"ours", iterations=4096)]
    others.append(unmeetable_keys(algorithm, "nobody", secret=b"theirs", iterations=4096))
    assert len({keys.salt for keys in [made, *others]}) == 3
    client = ScramClient(algorithm, "nobody", "pencil", nonce="abc")
    assert talk(ScramServer(algorithm, nonce="def"), client, made) == Failure("wrong user or password")


# -- the client is not fooled


def challenged(challenge: bytes) -> bytes:
    client = ScramClient(SHA_256, "user", "pencil", nonce="abc")
    client.first()
    return client.final(challenge)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=abc,s=QQ==,i=4096",
        b"r=xabcdef,s=QQ==,i=4096",
        b"r=abcdef,i=4096,s=QQ==",
        b"r=abcdef,s=*,i=4096",
        b"r=abcdef,s=QQ==",
        b"m=x,r=abcdef,s=QQ==,i=4096",
        b"e=other-error",
        b"\xff",
        f"r=abcdef,s=QQ==,i={ITERATIONS_MIN - 1}".encode(),
        f"r=abcdef,s=QQ==,i={ITERATIONS_MAX + 1}".encode(),
        b"r=abcdef,s=QQ==,i=-1",
        b"r=abcdef,s=QQ==,i=" + b"9" * 5000,
    ],
)
def test_a_challenge_that_cannot_be_is_refused(challenge: bytes) -> None:
    with pytest.raises(ScramError) as caught:
        challenged(challenge)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "data",
    [b"", b"v=", b"v=AAAA", b"v=*", b"x=y", b"e=invalid-proof", b"\xff", b"v=" + base64.b64encode(bytes(32))],
)
def test_a_server_that_does_not_know_the_password_is_detected(data: bytes) -> None:
    """Section 5: a client that does not check the signature accepts every server."""
    client = ScramClient(SHA_256, "user", "pencil", nonce="abc")
    client.final(b"r=abcdef,s=QQ==,i=4096")
    with pytest.raises(ScramError):
        client.finish(data)
    assert not client.complete


def test_a_signature_before_the_challenge_proves_nothing() -> None:
    with pytest.raises(ScramError):
        ScramClient(SHA_256, "user", "pencil", nonce="abc").finish(b"v=")
