"""What a SASL mechanism is to the server's layer, and the simple ones: ANONYMOUS, PLAIN, EXTERNAL.

A mechanism is one attempt of one peer: it takes what the peer says and gives steps. What it cannot know (is this the password?) it asks:
the step is a question, the shell answers it, and the answer gives the next step. One law: no step and no reason has a secret in its
representation.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from amqp_streams.wire.security.saslprep import NAME_CHARACTERS_MAX


class ScramAlgorithm(StrEnum):
    """The hash functions of SCRAM here; SHA-1 is not among them. The value is the mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The hash function as `hashlib` calls it."""
        return self.value.removeprefix("SCRAM-").replace("-", "").lower()


# -- steps


@dataclass(frozen=True, slots=True)
class Challenge:
    """The peer must answer this."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Success:
    """The peer is `user`, or None for anonymous; `data` goes with the outcome.

    `groups` are those that its credentials name; `expires_ms` is when they end, in ms since the epoch.
    """

    user: str | None
    data: bytes | None = None
    groups: frozenset[str] = frozenset()
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The peer is not who it says, or does not follow the mechanism. `reason` is for the log, not for the peer."""

    reason: str


# -- questions: steps that the shell answers


@dataclass(frozen=True, slots=True)
class VerifyPlain:
    """Is the password the user's? Answer: Success with the user as it is called here, or Failure. It takes tens of milliseconds."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FindKeys:
    """What is kept of the user's password for this mechanism? Answer: ScramKeys; of a user that there is not, such that nobody can meet."""

    user: str
    algorithm: ScramAlgorithm


@dataclass(frozen=True, slots=True)
class VerifyToken:
    """Whose is this token? Answer: Success or Failure. `user`: who the peer says that it is, if it says so."""

    token: str = field(repr=False)
    user: str | None = None


Question = VerifyPlain | FindKeys | VerifyToken
Step = Challenge | Success | Failure | Question


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password (RFC 5802, section 3): whoever has it can check a proof, not make one.

    `user` is the name as it is kept; it may differ from what the peer sent by SASLprep.
    """

    user: str
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


Answer = Success | Failure | ScramKeys


class Mechanism(Protocol):
    """One attempt of one peer."""

    @property
    def claimed(self) -> str | None:
        """Who the peer says that it is, once it has said so. For limits and the log."""

    def start(self, initial: bytes | None) -> Step:
        """The initial response; None if the peer sent none."""

    def respond(self, data: bytes) -> Step:
        """The answer to the last challenge."""

    def answered(self, answer: Answer) -> Step:
        """The shell's answer to the last question."""


class Anonymous:
    """RFC 4505: everybody. The trace that the peer may send is not looked at."""

    claimed: str | None = None

    def start(self, initial: bytes | None) -> Step:  # noqa: ARG002  nothing depends on the trace
        """Everybody is let in."""
        return Success(None)

    def respond(self, data: bytes) -> Step:  # noqa: ARG002  there was no challenge
        """There is nothing to answer."""
        return Failure("ANONYMOUS has no challenge")

    def answered(self, answer: Answer) -> Step:
        """There is no question."""
        raise AssertionError(answer)


class Plain:
    """RFC 4616: `[authorization id] NUL user NUL password`, UTF-8."""

    def __init__(self) -> None:
        self.claimed: str | None = None

    def start(self, initial: bytes | None) -> Step:
        """The message, or an empty challenge that asks for it."""
        return Challenge(b"") if initial is None else self.respond(initial)

    def respond(self, data: bytes) -> Step:
        """The message."""
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            return Failure("not UTF-8")
        if len(parts) != 3:
            return Failure("not three parts")
        identity, user, password = parts
        if len(user) > NAME_CHARACTERS_MAX:
            return Failure(f"a name of more than {NAME_CHARACTERS_MAX} characters")
        self.claimed = user or None
        if not user or not password:
            return Failure("no user or no password")
        if identity not in {"", user}:
            return Failure("a user may act for itself only")
        return VerifyPlain(user, password)

    def answered(self, answer: Answer) -> Step:
        """Whether it is the password."""
        assert isinstance(answer, Success | Failure)
        return answer


class External:
    """RFC 4422, appendix A: the peer is whom its certificate names; who that is was found out before."""

    def __init__(self, user: str | None, reason: str = "") -> None:
        """`user`: whom the certificate stands for; None: nobody, and why."""
        self.claimed: str | None = user
        self._reason = reason

    def start(self, initial: bytes | None) -> Step:
        """The identity to act for: none, or the peer's own. A peer that sends no initial response has none in mind: it is not asked."""
        return self.respond(initial or b"")

    def respond(self, data: bytes) -> Step:
        """The identity to act for."""
        if self.claimed is None:
            return Failure(self._reason)
        if data not in (b"", self.claimed.encode()):
            return Failure("a user may act for itself only")
        return Success(self.claimed)

    def answered(self, answer: Answer) -> Step:
        """There is no question."""
        raise AssertionError(answer)
