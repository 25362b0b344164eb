"""The beginning of a connection between nodes: who belongs together, and every way to cheat."""

import contextlib
import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.messages import Identity
from amqp_streams.homes.protocol.dialogue import (
    NONCE_BYTES,
    WORDS,
    Dialogue,
    Reason,
    RefusedError,
    Role,
    refusal,
    refused,
)
from amqp_streams.homes.protocol.frames import HELLO_BYTES_MAX, Frame, FrameError, Kind, Splitter

ONE, TWO = Identity("one", "cluster", "prefix"), Identity("two", "cluster", "prefix")
SECRET, OTHER = b"s" * 32, b"t" * 32


@dataclass
class Side:
    dialogue: Dialogue
    sent: list[Frame] = field(default_factory=list)

    def take(self, frame: Frame) -> None:
        self.keep(self.dialogue.take(frame))

    def keep(self, data: list[bytes]) -> None:
        splitter = Splitter()
        for each in data:
            splitter.feed(each)
            frame = splitter.next()
            assert frame is not None
            assert not splitter.has_bytes
            assert 1 + len(frame.body) <= HELLO_BYTES_MAX
            self.sent.append(frame)


def caller(
    me: Identity = TWO, *secrets: bytes, nonce: bytes = b"2" * NONCE_BYTES, certificate: bytes = b""
) -> Side:
    side = Side(Dialogue(Role.CALLER, me, secrets or (SECRET,), nonce, certificate=certificate))
    side.keep(side.dialogue.begin())
    return side


def called(
    me: Identity = ONE, *secrets: bytes, nonce: bytes = b"1" * NONCE_BYTES, certificate: bytes = b""
) -> Side:
    side = Side(Dialogue(Role.CALLED, me, secrets or (SECRET,), nonce, certificate=certificate))
    side.keep(side.dialogue.begin())
    return side


def run(calls: Side, answers: Side) -> None:
    """Let both speak until nothing is left to say."""
    taken = [0, 0]
    while taken[0] < len(calls.sent) or taken[1] < len(answers.sent):
        for index, (speaker, hearer) in enumerate(((calls, answers), (answers, calls))):
            for frame in speaker.sent[taken[index] :]:
                taken[index] += 1
                hearer.take(frame)


def test_nodes_that_belong_together_know_each_other_after_four_frames() -> None:
    two, one = caller(), called()
    run(two, one)
    assert two.dialogue.done
    assert one.dialogue.done
    assert (two.dialogue.peer, one.dialogue.peer) == (ONE, TWO)
    assert (
        [frame.kind for frame in two.sent] == [frame.kind for frame in one.sent] == [Kind.HELLO, Kind.PROOF]
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((SECRET, OTHER), (SECRET,)),
        ((SECRET, OTHER), (OTHER, SECRET)),
        ((OTHER, SECRET), (OTHER,)),
    ],
)
def test_while_a_secret_is_changed_both_are_accepted(
    first: tuple[bytes, ...], second: tuple[bytes, ...]
) -> None:
    for calling, answering in ((first, second), (second, first)):
        two, one = caller(TWO, *calling), called(ONE, *answering)
        run(two, one)
        assert two.dialogue.done
        assert one.dialogue.done


def test_certificates_can_be_the_only_proof() -> None:
    two = Side(Dialogue(Role.CALLER, TWO, (), b"2" * NONCE_BYTES, certificate=b"c"))
    one = Side(Dialogue(Role.CALLED, ONE, (), b"1" * NONCE_BYTES, certificate=b"c"))
    two.keep(two.dialogue.begin())
    run(two, one)
    assert two.dialogue.done
    assert one.dialogue.done


@pytest.mark.parametrize("without", [Role.CALLER, Role.CALLED])
def test_a_node_with_a_secret_does_not_accept_one_without(without: Role) -> None:
    two, one = caller(), called()
    if without is Role.CALLER:
        two = Side(Dialogue(Role.CALLER, TWO, (), b"2" * NONCE_BYTES))
        two.keep(two.dialogue.begin())
    else:
        one = Side(Dialogue(Role.CALLED, ONE, (), b"1" * NONCE_BYTES))
    with pytest.raises(RefusedError) as raised:
        run(two, one)
    assert raised.value.reason is Reason.SECRET


@pytest.mark.parametrize(
    ("me", "reason"),
    [
        (replace(TWO, cluster="another"), Reason.CLUSTER),
        (replace(TWO, prefix="another"), Reason.CLUSTER),
        (ONE, Reason.SAME),
    ],
)
def test_nodes_that_do_not_belong_together_refuse_each_other(me: Identity, reason: Reason) -> None:
    one, two = called(), caller(me)
    with pytest.raises(RefusedError) as raised:
        one.take(two.sent[0])
    assert raised.value.reason is reason
    assert [frame.kind for frame in one.sent] == [], "the called node says nothing about itself"
    with pytest.raises(RefusedError):
        two.take(Frame(Kind.HELLO, one_hello(ONE, Role.CALLED)))


def one_hello(me: Identity, speaks: Role, **changed: object) -> bytes:
    side = Side(Dialogue(Role.CALLER, me, (SECRET,), b"9" * NONCE_BYTES))
    side.keep(side.dialogue.begin())
    return json.dumps({**json.loads(side.sent[0].body), "role": speaks, **changed}).encode()


def test_a_wrong_secret_is_refused_before_the_called_node_proves() -> None:
    two, one = caller(TWO, OTHER), called()
    with pytest.raises(RefusedError) as raised:
        run(two, one)
    assert raised.value.reason is Reason.SECRET
    assert not one.dialogue.done
    assert [frame.kind for frame in one.sent] == [Kind.HELLO]
    assert SECRET.decode() not in str(raised.value)


def test_a_called_node_with_a_wrong_secret_is_refused() -> None:
    """It accepts both, and proves another one."""
    two, one = caller(), called(ONE, OTHER, SECRET)
    with pytest.raises(RefusedError):
        run(two, one)
    assert not two.dialogue.done


def test_a_proof_that_is_sent_back_is_refused() -> None:
    """The other side knows no secret, and repeats the proof of the caller."""
    two = caller()
    two.take(Frame(Kind.HELLO, one_hello(ONE, Role.CALLED)))
    proof = two.sent[-1]
    assert proof.kind == Kind.PROOF
    with pytest.raises(RefusedError):
        two.take(proof)
    assert not two.dialogue.done


def test_a_proof_of_another_connection_is_refused() -> None:
    two, one = caller(), called()
    run(two, one)
    again = called(nonce=b"3" * NONCE_BYTES)
    again.take(two.sent[0])
    with pytest.raises(RefusedError):
        again.take(two.sent[1])


def test_a_proof_is_no_proof_of_another_process() -> None:
    two, one = caller(), called()
    two.take(Frame(Kind.HELLO, one_hello(ONE, Role.CALLED, nonce=(b"1" * NONCE_BYTES).hex())))
    three = json.loads(two.sent[0].body)
    one.take(Frame(Kind.HELLO, json.dumps({**three, "process": "three"}).encode()))
    with pytest.raises(RefusedError):
        one.take(two.sent[1])


def test_a_program_that_ends_tls_in_the_middle_cannot_pass_proofs_on() -> None:
    two, one = caller(certificate=b"of the middle"), called(certificate=b"of the node")
    with pytest.raises(RefusedError) as raised:
        run(two, one)
    assert raised.value.reason is Reason.SECRET


@pytest.mark.parametrize("bit", range(0, 256, 37))
def test_every_bit_of_the_proof_counts(bit: int) -> None:
    two, one = caller(), called()
    one.take(two.sent[0])
    two.take(one.sent[0])
    proof = bytearray.fromhex(json.loads(two.sent[1].body)["proof"])
    proof[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RefusedError):
        one.take(Frame(Kind.PROOF, json.dumps({"proof": proof.hex()}).encode()))


@pytest.mark.parametrize("kind", [Kind.PROOF, Kind.REPORT, Kind.ANSWER, Kind.BEAT])
def test_nothing_is_taken_before_the_hello(kind: Kind) -> None:
    with pytest.raises(FrameError, match="cannot come before both nodes have proved"):
        called().take(Frame(kind, b"{}"))


def test_a_second_hello_is_refused() -> None:
    two, one = caller(), called()
    one.take(two.sent[0])
    with pytest.raises(FrameError):
        one.take(two.sent[0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"process": 1}, "hello.process must be a text"),
        ({"process": "p" * 256}, "hello.process must be a text"),
        ({"cluster": None}, "hello.cluster is missing"),
        ({"prefix": []}, "hello.prefix must be a text"),
        ({"nonce": "12"}, "hello.nonce must be 64 characters"),
        ({"nonce": "1" * 65}, "hello.nonce must be a text of at most 64"),
        ({"role": "called"}, "hello.role must be caller"),
        ({"version": "1"}, "hello.version must be"),
    ],
)
def test_a_field_of_the_hello_that_is_not_valid_is_named(changed: dict[str, object], words: str) -> None:
    body = one_hello(TWO, Role.CALLER, **changed)
    with pytest.raises(FrameError, match=words):
        called().take(Frame(Kind.HELLO, body))


def test_another_version_is_refused_whatever_else_it_says() -> None:
    with pytest.raises(RefusedError) as raised:
        called().take(Frame(Kind.HELLO, b'{"version":2,"process":{"new":"form"}}'))
    assert raised.value.reason is Reason.VERSION


def test_fields_and_kinds_of_a_later_version_are_ignored() -> None:
    two, one = caller(), called()
    one.take(Frame(200, b"?"))
    one.take(Frame(Kind.HELLO, json.dumps({**json.loads(two.sent[0].body), "later": 1}).encode()))
    assert one.dialogue.peer == TWO


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_tells_the_other_node_why(reason: Reason) -> None:
    splitter = Splitter()
    splitter.feed(refused(reason))
    frame = splitter.next()
    assert frame is not None
    with pytest.raises(RefusedError) as raised:
        caller().take(frame)
    assert (raised.value.reason, raised.value.remote, str(raised.value)) == (reason, True, WORDS[reason])


def test_a_reason_of_a_later_version_is_not_shown() -> None:
    error = refusal(b'{"reason":"\\u001b[31mfire"}')
    assert isinstance(error, FrameError)
    assert "fire" not in str(error)


@given(st.sampled_from([Kind.HELLO, Kind.PROOF, Kind.REFUSED, 9]), st.binary(max_size=200), st.booleans())
def test_garbage_gives_the_documented_errors_and_never_a_node(kind: int, body: bytes, greeted: bool) -> None:
    one = called()
    if greeted:
        one.take(caller().sent[0])
    with contextlib.suppress(FrameError, RefusedError):
        one.take(Frame(kind, body))
    assert not one.dialogue.done
