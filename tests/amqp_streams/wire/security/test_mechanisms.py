"""The simple mechanisms, one by one. Whole dialogues: test_sasl."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.security.mechanisms import (
    Anonymous,
    Challenge,
    External,
    Failure,
    FindKeys,
    Plain,
    ScramAlgorithm,
    ScramKeys,
    Success,
    VerifyPlain,
    VerifyToken,
)


def test_anonymous_is_never_asked_anything_so_it_answers_nothing() -> None:
    assert Anonymous().respond(b"") == Failure("ANONYMOUS has no challenge")


def test_a_password_a_key_and_a_token_are_in_no_representation() -> None:
    keys = ScramKeys("alice", b"salt", 4096, b"secret stored", b"secret server")
    for each in (VerifyPlain("alice", "secret"), VerifyToken("secret", "alice"), keys):
        assert "secret" not in repr(each)
        assert "alice" in repr(each)


def test_scram_algorithms_are_called_as_their_mechanisms_and_know_their_hash() -> None:
    assert {algorithm: algorithm.digest for algorithm in ScramAlgorithm} == {
        "SCRAM-SHA-256": "sha256",
        "SCRAM-SHA-512": "sha512",
    }
    assert FindKeys("alice", ScramAlgorithm.SHA_256).algorithm == "SCRAM-SHA-256"


@pytest.mark.parametrize("initial", [None, b"", b"alice"])
def test_external_logs_in_the_user_of_the_certificate(initial: bytes | None) -> None:
    """RFC 4422, appendix A.

    Several libraries send no initial response at all where they mean an empty one.
    """
    assert External("alice").start(initial) == Success("alice")


def test_external_lets_no_user_act_for_another() -> None:
    assert isinstance(External("alice").start(b"bob"), Failure)


def test_external_refuses_a_certificate_without_a_user_and_says_why() -> None:
    assert External(None, "no rule fits").start(b"alice") == Failure("no rule fits")


@given(st.binary(max_size=40))
def test_plain_takes_a_user_and_a_password_or_says_what_is_wrong_without_them(data: bytes) -> None:
    plain = Plain()
    step = plain.start(data)
    match step:
        case VerifyPlain(user, password):
            assert data.decode() in (f"\0{user}\0{password}", f"{user}\0{user}\0{password}")
            assert plain.claimed == user
        case Failure(reason):
            assert reason in {
                "the message is not UTF-8",
                "the message does not have three parts",
                "the user or the password is empty",
                "a user cannot act for another user",
            }
        case _:
            pytest.fail(f"{step}")


def test_the_answer_about_a_password_is_the_end_of_plain() -> None:
    plain = Plain()
    assert plain.start(None) == Challenge(b"")
    assert plain.respond(b"\0alice\0x") == VerifyPlain("alice", "x")
    assert plain.answered(Success("alice")) == Success("alice")
    assert plain.answered(Failure("no")) == Failure("no")


def test_plain_refuses_a_name_that_no_user_has() -> None:
    """Names are prepared before the login, so their length is bounded."""
    plain = Plain()
    assert plain.start(b"\0" + b"x" * 256 + b"\0secret") == Failure(
        "the user name has more than 255 characters"
    )
    assert plain.claimed is None
