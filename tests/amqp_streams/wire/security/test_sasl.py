"""The SASL layer: every way through it, and bytes one by one as all at once."""

import base64
from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import SASL, Connection, Transport

from amqp_streams.wire.codec import Array, Described, Symbol, ULong, Value, encode
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.frames import frame, read_frames, read_performative
from amqp_streams.wire.security.bearer import BearerServer, oauthbearer_message
from amqp_streams.wire.security.mechanisms import (
    Anonymous,
    Answer,
    Challenge,
    Failure,
    FindKeys,
    Mechanism,
    Plain,
    ScramAlgorithm,
    Step,
    Success,
    VerifyPlain,
    VerifyToken,
)
from amqp_streams.wire.security.sasl import (
    AMQP_HEADER,
    FRAME_MAX,
    PIPELINED_MAX,
    ROUNDS_MAX,
    SASL_HEADER,
    Authenticated,
    Event,
    Failed,
    NoSasl,
    SaslServer,
    Send,
)
from amqp_streams.wire.security.scram import ScramServer, make_keys, unmeetable_keys
from tests.amqp_streams.decoded import described, items

BOTH: dict[str, Callable[[], Mechanism]] = {"PLAIN": Plain, "ANONYMOUS": Anonymous}
USERS = {"alice": "secret", "böb": "pässwörd"}


class Echoing:
    """A mechanism of several rounds. It repeats what it receives until the answer stops it."""

    claimed: str | None = None

    def start(self, initial: bytes | None) -> Step:
        return Challenge(initial or b"")

    def respond(self, data: bytes) -> Step:
        if data == b"stop":
            return Success("echo", b"bye")
        return Failure("told to") if data == b"fail" else Challenge(data)

    def answered(self, answer: Answer) -> Step:
        raise AssertionError(answer)


def sasl(code: int, *fields: Value) -> bytes:
    return frame(0, encode(Described(ULong(code), list(fields))), type=1)


def init(mechanism: str, initial: bytes | None = None, hostname: str | None = None) -> bytes:
    return sasl(0x41, Symbol(mechanism), initial, hostname)


def run(
    pieces: Iterator[bytes] | list[bytes], mechanisms: Mapping[str, Callable[[], Mechanism]] = BOTH
) -> tuple[bytes, list[Event], bytes]:
    """A shell: the sent bytes, the other events, and the bytes after the SASL layer (returned or never
    fed).
    """
    server = SaslServer(mechanisms)
    sent, behind = b"", b""
    others: list[Event] = []
    pieces = list(pieces)
    while pieces and not server.done:
        todo = server.feed(pieces.pop(0))
        while todo:
            event = todo.pop(0)
            match event:
                case Send(data):
                    sent += data
                case VerifyPlain(user, password):
                    others.append(event)
                    todo += server.answer(
                        Success(user) if USERS.get(user) == password else Failure("wrong user or password")
                    )
                case FindKeys(user, algorithm):
                    others.append(event)
                    todo += server.answer(
                        KEYS
                        if user == "user"
                        else unmeetable_keys(algorithm, user, secret=b"", iterations=4096)
                    )
                case VerifyToken(token):
                    others.append(event)
                    todo += server.answer(Success("alice") if token == "good" else Failure("expired"))
                case Authenticated(leftover=leftover) | NoSasl(leftover=leftover):
                    behind += leftover
                    others.append(event)
                case Failed():
                    others.append(event)
    return sent, others, behind + b"".join(pieces)


def read(sent: bytes) -> list[tuple[int, list[object]]]:
    assert sent.startswith(SASL_HEADER)
    frames = [described(decode(found.body)[0]) for found in read_frames(sent[len(SASL_HEADER) :])]
    return [(int(str(each.descriptor)), items(each.value)) for each in frames]


# RFC 7677, section 3
SCRAM = "SCRAM-SHA-256"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
KEYS = make_keys(
    ScramAlgorithm.SHA_256,
    "user",
    "pencil",
    salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
    iterations=4096,
)
EVERY: dict[str, Callable[[], Mechanism]] = {
    **BOTH,
    SCRAM: lambda: ScramServer(ScramAlgorithm.SHA_256, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
    "OAUTHBEARER": lambda: BearerServer("OAUTHBEARER"),
}
OFFER = (0x40, [Array(Symbol, (Symbol("PLAIN"), Symbol("ANONYMOUS")))])


def test_the_right_password_lets_a_user_in() -> None:
    sent, events, behind = run(
        [SASL_HEADER + init("PLAIN", b"\0alice\0secret", "example.org") + AMQP_HEADER + b"open"]
    )
    assert read(sent) == [OFFER, (0x44, [0])]
    assert events == [
        VerifyPlain("alice", "secret"),
        Authenticated("alice", "PLAIN", "example.org", AMQP_HEADER + b"open"),
    ]
    assert behind == AMQP_HEADER + b"open"


def test_anonymous_has_no_user() -> None:
    for trace in (None, b"", b"someone@example.org"):
        sent, events, _ = run([SASL_HEADER + init("ANONYMOUS", trace)])
        assert read(sent) == [OFFER, (0x44, [0])]
        assert events == [Authenticated(None, "ANONYMOUS", None, b"")]


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0nobody\0secret",
        b"alice\0secret",
        b"",
        b"\0\0",
        b"\0alice\0",
        b"\0\0secret",
        b"bob\0alice\0secret",
        b"\0alice\0secret\0",
        b"\0\xff\0x",
    ],
)
def test_anything_but_the_right_password_is_refused_with_outcome_auth(message: bytes) -> None:
    sent, events, _ = run([SASL_HEADER + init("PLAIN", message)])
    assert read(sent) == [OFFER, (0x44, [1])]
    assert isinstance(events[-1], Failed)
    assert "secret" not in events[-1].reason


def test_a_user_may_name_itself_as_the_identity_to_act_for() -> None:
    _, events, _ = run([SASL_HEADER + init("PLAIN", "böb\0böb\0pässwörd".encode())])
    assert events[-1] == Authenticated("böb", "PLAIN", None, b"")


def test_plain_without_an_initial_response_is_asked_for_it() -> None:
    sent, events, _ = run([SASL_HEADER + init("PLAIN"), sasl(0x43, b"\0alice\0secret")])
    assert read(sent) == [OFFER, (0x42, [b""]), (0x44, [0])]
    assert events[-1] == Authenticated("alice", "PLAIN", None, b"")


def test_a_password_is_in_no_representation() -> None:
    assert "secret" not in repr(VerifyPlain("alice", "secret"))


def test_a_mechanism_may_challenge_several_times_and_end_with_data() -> None:
    sent, events, _ = run(
        [SASL_HEADER + init("ECHO", b"a"), sasl(0x43, b"b"), sasl(0x43, b"stop")], {"ECHO": Echoing}
    )
    assert read(sent)[1:] == [(0x42, [b"a"]), (0x42, [b"b"]), (0x44, [0, b"bye"])]
    assert events == [Authenticated("echo", "ECHO", None, b"")]


def test_rounds_are_bounded() -> None:
    sent, events, _ = run(
        [SASL_HEADER + init("ECHO", b"a"), *[sasl(0x43, b"b")] * (ROUNDS_MAX + 1)], {"ECHO": Echoing}
    )
    assert read(sent)[-1] == (0x44, [1])
    assert events == [Failed(f"the login needs more than {ROUNDS_MAX} challenges", "ECHO")]


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    sent, events, _ = run([SASL_HEADER + init("PLAIN", b"\0alice\0secret")], {"ANONYMOUS": Anonymous})
    assert read(sent)[-1] == (0x44, [1])
    assert isinstance(events[-1], Failed)


@pytest.mark.parametrize("extra", [b"", b"open and more"])
def test_a_peer_without_sasl_is_recognised_and_its_bytes_left_alone(extra: bytes) -> None:
    assert run([AMQP_HEADER + extra]) == (b"", [NoSasl(AMQP_HEADER + extra)], AMQP_HEADER + extra)


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x03\x01\x00\x01",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_another_protocol_is_answered_with_ours_and_then_closed(header: bytes) -> None:
    """Section 2.2: a header that is not supported is answered with one that is."""
    sent, events, _ = run([header])
    assert sent == SASL_HEADER
    assert isinstance(events[-1], Failed)


@pytest.mark.parametrize(
    "data",
    [
        sasl(0x43, b"early"),
        sasl(0x40, Symbol("PLAIN")),
        sasl(0x44, 0),
        frame(0, encode(Described(ULong(0x41), [Symbol("PLAIN")]))),
        frame(0, b"", type=1),
        frame(0, b"\x45", type=1),
        frame(0, encode(Described(Symbol("x"), [])), type=1),
        frame(0, encode(Described(ULong(0x41), [])) + b"\x40", type=1),
        sasl(0x41),
        sasl(0x41, b"PLAIN"),
        sasl(0x41, Symbol("PLAIN"), 5),
        sasl(0x41, Symbol("PLAIN"), None, 5),
        init("PLAIN") + sasl(0x43),
        init("PLAIN") + sasl(0x43, "text"),
        init("PLAIN") + init("PLAIN"),
        b"\x00\x00\x00\x07\x02\x01\x00\x00",
        frame(0, bytes(FRAME_MAX), type=1),
        (FRAME_MAX + 1).to_bytes(4) + b"\x02\x01\x00\x00",
    ],
)
def test_a_breach_of_the_protocol_ends_the_connection(data: bytes) -> None:
    _, events, _ = run([SASL_HEADER + data])
    assert len(events) == 1
    assert isinstance(events[0], Failed)


def test_a_peer_may_send_on_before_it_knows_the_outcome_but_not_without_end() -> None:
    server = SaslServer(BOTH)
    server.feed(SASL_HEADER + init("PLAIN", b"\0alice\0secret"))
    assert server.feed(AMQP_HEADER) == []
    assert server.feed(b"x" * (PIPELINED_MAX - 8)) == []
    assert isinstance(server.feed(b"x")[-1], Failed)
    assert server.done


def test_when_a_password_cannot_be_checked_now_the_peer_may_try_again() -> None:
    server = SaslServer(BOTH)
    server.feed(SASL_HEADER + init("PLAIN", b"\0alice\0secret"))
    sent, failed = server.unavailable("too many at once")
    assert isinstance(sent, Send)
    assert described(decode(next(read_frames(sent.data)).body)[0]).value == [4]
    assert failed == Failed("too many at once", "PLAIN", "alice")


CONVERSATIONS = [
    SASL_HEADER + init("PLAIN", b"\0alice\0secret", "host") + AMQP_HEADER + b"rest",
    SASL_HEADER + init("PLAIN") + sasl(0x43, b"\0alice\0wrong") + AMQP_HEADER,
    SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + b"rest",
    AMQP_HEADER + b"rest",
    *(
        SASL_HEADER + init(SCRAM, first) + sasl(0x43, FINAL) + AMQP_HEADER + b"rest"
        for first in (FIRST, FIRST.replace(b"user", b"nobody"))
    ),
    SASL_HEADER + init("OAUTHBEARER", oauthbearer_message("good")) + AMQP_HEADER + b"rest",
    SASL_HEADER + init("OAUTHBEARER", oauthbearer_message("bad")) + sasl(0x43, b"\x01") + AMQP_HEADER,
    SASL_HEADER + init("NTLM"),
    SASL_HEADER + sasl(0x43),
    b"AMQP\x02\x01\x00\x00rest",
]


def told(result: tuple[bytes, list[Event], bytes]) -> tuple[bytes, list[object], bytes]:
    """Without `leftover`: like the fed bytes, it depends on how the bytes are divided. Together they are in
    the last part.
    """
    sent, events, behind = result
    plain: list[object] = [
        (event.user, event.mechanism, event.hostname) if isinstance(event, Authenticated) else event
        for event in events
        if not isinstance(event, NoSasl)
    ]
    return sent, plain, behind if not any(isinstance(event, Failed) for event in events) else b""


@given(
    st.sampled_from(CONVERSATIONS) | st.binary(max_size=80).map(SASL_HEADER.__add__) | st.binary(max_size=20),
    st.data(),
)
def test_bytes_in_any_pieces_give_the_same(conversation: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(conversation)), max_size=8)))
    pieces = [
        conversation[start:end] for start, end in zip([0, *cuts], [*cuts, len(conversation)], strict=True)
    ]
    one_by_one = [conversation[at : at + 1] for at in range(len(conversation))]
    assert told(run([conversation], EVERY)) == told(run(pieces, EVERY)) == told(run(one_by_one, EVERY))


def test_whole_conversations_of_several_rounds_let_the_right_peer_in() -> None:
    for conversation in CONVERSATIONS:
        events = run([conversation], EVERY)[1]
        let_in = isinstance(events[-1], Authenticated | NoSasl)
        assert let_in is (
            b"rest" in conversation
            and b"nobody" not in conversation
            and not conversation.startswith(b"AMQP\x02")
        ), events


@given(
    st.lists(
        st.sampled_from([init("PLAIN"), init("ECHO"), sasl(0x43, b"x"), b"\x00\x00", sasl(0x41, [])])
        | st.binary(max_size=12),
        max_size=6,
    )
)
def test_arbitrary_bytes_raise_nothing(parts: list[bytes]) -> None:
    run([SASL_HEADER, *parts], {**BOTH, "ECHO": Echoing})


@pytest.mark.parametrize("mechanism", ["PLAIN", "ANONYMOUS"])
def test_protons_client_gets_through(mechanism: str) -> None:
    connection, transport = Connection(), Transport(Transport.CLIENT)
    layer = transport.sasl()
    layer.allow_insecure_mechs = True
    layer.allowed_mechs(mechanism)
    connection.user, connection.password, connection.hostname, connection.container = (
        "alice",
        "secret",
        "here",
        "probe",
    )
    transport.bind(connection)
    connection.open()
    server = SaslServer(BOTH)
    behind = b""
    while True:
        pending = transport.pending()
        data = (transport.peek(pending) or b"") if pending > 0 else b""
        transport.pop(len(data))
        if server.done:
            behind += data
            break
        todo = server.feed(data)
        while todo:
            match todo.pop(0):
                case Send(sent):
                    transport.push(sent)
                case VerifyPlain("alice", "secret"):
                    todo += server.answer(Success("alice"))
                case Authenticated(user=user, leftover=leftover):
                    behind += leftover
                    assert user == ("alice" if mechanism == "PLAIN" else None)
                case event:
                    pytest.fail(f"unexpected {event}")
    assert layer.outcome == SASL.OK
    assert behind.startswith(AMQP_HEADER)
    assert read_performative(next(read_frames(behind[8:])).body).fields["container-id"] == "probe"


def test_an_initial_response_sent_as_text_is_understood() -> None:
    _, events, _ = run([SASL_HEADER + sasl(0x41, Symbol("PLAIN"), "\0alice\0secret")])
    assert events[-1] == Authenticated("alice", "PLAIN", None, b"")
