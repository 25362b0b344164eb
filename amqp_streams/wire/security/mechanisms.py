"""The interface of SASL mechanisms, and the simple ones: ANONYMOUS, PLAIN, EXTERNAL.

A mechanism handles one login attempt: it takes the peer's messages and returns steps. What it cannot know,
such as whether a password is right, is a question: a step that the shell answers. Law: no step and no reason
has a secret in its representation.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from amqp_streams.wire.security.saslprep import NAME_CHARACTERS_MAX


class ScramAlgorithm(StrEnum):
    """The supported hash functions of SCRAM. SHA-1 is not supported. The value is the mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The name of the hash function in `hashlib`."""
        return self.value.removeprefix("SCRAM-").replace("-", "").lower()


# -- steps


@dataclass(frozen=True, slots=True)
class Challenge:
    """Data that the peer must answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Success:
    """The peer is `user`; None: anonymous. `data` is sent with the outcome.

    `groups`: those in its credentials; `expires_ms`: when they expire, in ms since the epoch.
    """

    user: str | None
    data: bytes | None = None
    groups: frozenset[str] = frozenset()
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The login failed. `reason` is for the log, not for the peer."""

    reason: str


# -- questions: steps that the shell answers


@dataclass(frozen=True, slots=True)
class VerifyPlain:
    """Is this the user's password?

    Answer: Success with the user's name here, or Failure. Takes tens of milliseconds.
    """

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FindKeys:
    """The user's keys for this mechanism.

    Answer: ScramKeys; for an unknown user: keys that no password matches.
    """

    user: str
    algorithm: ScramAlgorithm


@dataclass(frozen=True, slots=True)
class VerifyToken:
    """The user of this token.

    Answer: Success or Failure. `user`: the user that the peer claims to be, if any.
    """

    token: str = field(repr=False)
    user: str | None = None


Question = VerifyPlain | FindKeys | VerifyToken
Step = Challenge | Success | Failure | Question


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server stores of a password (RFC 5802, section 3): it can verify a proof, but not create one.

    `user` is the stored name, which may differ by SASLprep from the one that the peer sent.
    """

    user: str
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


Answer = Success | Failure | ScramKeys


class Mechanism(Protocol):
    """One login attempt."""

    @property
    def claimed(self) -> str | None:
        """The user that the peer claims to be, once it is known. For limits and the log."""

    def start(self, initial: bytes | None) -> Step:
        """Handle the initial response; None if the peer did not send one."""

    def respond(self, data: bytes) -> Step:
        """Handle the peer's answer to the last challenge."""

    def answered(self, answer: Answer) -> Step:
        """Handle the shell's answer to the last question."""


class Anonymous:
    """ANONYMOUS (RFC 4505): every client may log in.

    The trace information that a client may send is ignored.
    """

    claimed: str | None = None

    def start(self, initial: bytes | None) -> Step:  # noqa: ARG002  nothing depends on the trace
        """Log in without a user."""
        return Success(None)

    def respond(self, data: bytes) -> Step:  # noqa: ARG002  the server sends no challenge
        """ANONYMOUS sends no challenge."""
        return Failure("ANONYMOUS has no challenge")

    def answered(self, answer: Answer) -> Step:
        """ANONYMOUS asks no question."""
        raise AssertionError(answer)


class Plain:
    """PLAIN (RFC 4616): one message, `[authorization id] NUL user NUL password`, in UTF-8."""

    def __init__(self) -> None:
        self.claimed: str | None = None

    def start(self, initial: bytes | None) -> Step:
        """Handle the initial response. Without one, return an empty challenge, which asks for the message."""
        return Challenge(b"") if initial is None else self.respond(initial)

    def respond(self, data: bytes) -> Step:
        """Handle the client's message."""
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            return Failure("the message is not UTF-8")
        if len(parts) != 3:
            return Failure("the message does not have three parts")
        identity, user, password = parts
        # Before the name is prepared or logged: the peer is not authenticated yet.
        if len(user) > NAME_CHARACTERS_MAX:
            return Failure(f"the user name has more than {NAME_CHARACTERS_MAX} characters")
        self.claimed = user or None
        if not user or not password:
            return Failure("the user or the password is empty")
        # Acting for another user would need a rule that says who may, and no rule does.
        if identity not in {"", user}:
            return Failure("a user cannot act for another user")
        return VerifyPlain(user, password)

    def answered(self, answer: Answer) -> Step:
        """Handle the result of checking the password."""
        assert isinstance(answer, Success | Failure)
        return answer


class External:
    """RFC 4422, appendix A: the client certificate identifies the user.

    The shell has already looked it up.
    """

    def __init__(self, user: str | None, reason: str = "") -> None:
        """`user`: the user of the certificate. None: the certificate has no user, and `reason` says why."""
        self.claimed: str | None = user
        self._reason = reason

    def start(self, initial: bytes | None) -> Step:
        """Handle the identity to act for: empty, or the peer's own.

        A missing initial response counts as empty: no challenge asks for it.
        """
        return self.respond(initial or b"")

    def respond(self, data: bytes) -> Step:
        """Handle the identity to act for."""
        if self.claimed is None:
            return Failure(self._reason)
        if data not in (b"", self.claimed.encode()):
            return Failure("a user cannot act for another user")
        return Success(self.claimed)

    def answered(self, answer: Answer) -> Step:
        """EXTERNAL asks no question."""
        raise AssertionError(answer)
