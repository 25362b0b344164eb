"""The beginning of a connection between nodes: who both are, and the proof that both know the secret. Pure.

1. The node that connects (the caller) sends HELLO: version, process, cluster, prefix, role, and a nonce.
2. The node that was called sends its HELLO.
3. The caller sends PROOF: an HMAC-SHA256 with the secret.
4. The called node checks it, and sends its PROOF.

Both proofs cover both nonces, both process ids, the role of who proves, and the certificate of the called
node. Laws: a proof is good for one connection and one side only: a proof that is sent back, or that comes
from another connection, is refused. The called node proves nothing to a caller that has not. A node in the
middle that ends TLS itself cannot pass proofs on, because it has another certificate. Secrets and proofs
are in no message of an error.
"""

import hmac
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from amqp_streams.errors import AmqpStreamsError
from amqp_streams.homes.messages import Identity
from amqp_streams.homes.protocol import frames
from amqp_streams.homes.protocol.fields import Fields, Json, encoded
from amqp_streams.homes.protocol.frames import Frame, FrameError, Kind

VERSION: Final = 1
"""Grows only with a change that earlier versions cannot ignore."""
NONCE_BYTES: Final = 32
CHANGES: Final = "changes"
"""A node whose HELLO has this word takes frames ASKED. Earlier versions ignore them and would not answer."""
INQUIRIES: Final = "inquiries"
"""The same for frames INQUIRY."""
_NAME_CHARACTERS_MAX: Final = 255
_DOMAIN: Final = "amqp-streams nodes"


class Role(StrEnum):
    """The side of a connection."""

    CALLER = "caller"
    """It connected, and sends reports."""
    CALLED = "called"
    """It listens, and sends answers."""


class Reason(StrEnum):
    """Why a node does not accept another one. The values are the protocol's."""

    VERSION = "version"
    CLUSTER = "cluster"
    SAME = "same"
    SECRET = "secret"  # noqa: S105  (the name of a reason)


WORDS: Final = {
    Reason.VERSION: "the nodes use different versions of their protocol: run the same release on all nodes",
    Reason.CLUSTER: (
        "the nodes use different Kafka clusters or prefixes: set the same kafka.servers and kafka.prefix on"
        " all nodes"
    ),
    Reason.SAME: "the node has reached itself: set node.advertise to an address that only this node has",
    Reason.SECRET: "the nodes have different secrets: give all nodes the same node.secret_file",
}


class RefusedError(AmqpStreamsError):
    """This node does not accept the other one; `remote`: the other node does not accept this one."""

    def __init__(self, reason: Reason, *, remote: bool = False) -> None:
        self.reason: Final = reason
        self.remote: Final = remote
        super().__init__(WORDS[reason])


@dataclass(frozen=True, slots=True)
class _Hello:
    identity: Identity
    nonce: str


class Dialogue:
    """One side of one connection.

    `secrets`: the first is proved, and all are accepted; none: certificates alone prove who is a node.
    `nonce`: random bytes that are used once. `certificate`: of the called node, as this side knows it, in
    DER; empty without TLS.
    """

    def __init__(
        self, role: Role, me: Identity, secrets: tuple[bytes, ...], nonce: bytes, *, certificate: bytes = b""
    ) -> None:
        assert len(nonce) == NONCE_BYTES, "the nonce makes each proof another one"
        self.peer: Identity | None = None
        """The other node, as it says. It is proved when `done`."""
        self.takes: frozenset[str] = frozenset()
        """What the other node says that it takes, besides what all versions do. No proof covers it."""
        self.done = False
        self._role: Final = role
        self._secrets: Final = secrets
        self._certificate: Final = sha256(certificate).hexdigest() if certificate else ""
        self._mine: Final = _Hello(me, nonce.hex())
        self._theirs: _Hello | None = None

    def begin(self) -> list[bytes]:
        """The first bytes to send."""
        return [self._hello()] if self._role is Role.CALLER else []

    def take(self, frame: Frame) -> list[bytes]:
        """Take a frame of the other side. Returns what to send.

        Raises:
            RefusedError: the nodes do not belong together.
            FrameError: the frame does not follow the protocol.
        """
        match frame.kind:
            case Kind.HELLO if self._theirs is None:
                return self._greeted(Fields.of(frame.body, "hello"))
            case Kind.PROOF if self._theirs is not None and not self.done:
                return self._proved(Fields.of(frame.body, "proof"), self._theirs)
            case Kind.REFUSED:
                raise refusal(frame.body)
            case kind if kind in set(Kind):
                message = f"a frame {Kind(frame.kind).name.lower()} cannot come before both nodes have proved"
                raise FrameError(message)
            case _:
                return []

    def _hello(self) -> bytes:
        me = self._mine.identity
        body: Json = {
            "version": VERSION,
            "role": self._role,
            "process": me.process,
            "cluster": me.cluster,
            "prefix": me.prefix,
            "nonce": self._mine.nonce,
            "takes": [CHANGES, INQUIRIES],
        }
        return frames.encoded(Kind.HELLO, encoded(body).encode())

    def _greeted(self, fields: Fields) -> list[bytes]:
        # The version first: of another one, the other fields may have another meaning.
        if fields.whole("version") != VERSION:
            raise RefusedError(Reason.VERSION)
        theirs = Identity(
            fields.text("process", _NAME_CHARACTERS_MAX),
            fields.text("cluster", _NAME_CHARACTERS_MAX),
            fields.text("prefix", _NAME_CHARACTERS_MAX),
        )
        nonce, mine = fields.text("nonce", 2 * NONCE_BYTES), self._mine.identity
        if len(nonce) != 2 * NONCE_BYTES:
            raise fields.error("nonce", f"{2 * NONCE_BYTES} characters")
        if fields.text("role", _NAME_CHARACTERS_MAX) != _other(self._role):
            raise fields.error("role", _other(self._role))
        if (theirs.cluster, theirs.prefix) != (mine.cluster, mine.prefix):
            raise RefusedError(Reason.CLUSTER)
        if theirs.process == mine.process:
            raise RefusedError(Reason.SAME)
        self.takes = frozenset(fields.texts("takes"))
        self.peer, self._theirs = theirs, _Hello(theirs, nonce)
        return [self._hello()] if self._role is Role.CALLED else [self._proof(self._theirs)]

    def _proved(self, fields: Fields, theirs: _Hello) -> list[bytes]:
        given = fields.text("proof", 2 * sha256().digest_size)
        expected = [self._code(secret, _other(self._role), theirs) for secret in self._secrets] or [""]
        # All are compared, each in constant time. Bytes, because texts may be compared in ASCII only.
        if not sum(hmac.compare_digest(given.encode(), each.encode()) for each in expected):
            raise RefusedError(Reason.SECRET)
        self.done = True
        return [self._proof(theirs)] if self._role is Role.CALLED else []

    def _proof(self, theirs: _Hello) -> bytes:
        code = self._code(self._secrets[0], self._role, theirs) if self._secrets else ""
        return frames.encoded(Kind.PROOF, encoded({"proof": code}).encode())

    def _code(self, secret: bytes, role: Role, theirs: _Hello) -> str:
        """The proof of the side with this role."""
        pair = [self._mine, theirs] if self._role is Role.CALLER else [theirs, self._mine]
        # JSON, because no separator is safe in ids with any character.
        proved = encoded(
            [
                _DOMAIN, VERSION, role, self._certificate, self._mine.identity.cluster,
                self._mine.identity.prefix, *([each.identity.process, each.nonce] for each in pair),
            ]
        )  # fmt: skip
        return hmac.new(secret, proved.encode(), sha256).hexdigest()


def refused(reason: Reason) -> bytes:
    """The frame that tells the other node why it is refused."""
    return frames.encoded(Kind.REFUSED, encoded({"reason": reason}).encode())


def refusal(body: bytes) -> RefusedError | FrameError:
    """The error for a frame REFUSED of the other node."""
    reason = Fields.of(body, "refused").text("reason", _NAME_CHARACTERS_MAX)
    if reason in {str(each) for each in Reason}:
        return RefusedError(Reason(reason), remote=True)
    return FrameError("the other node refused this one, for a reason that this version does not know")


def _other(role: Role) -> Role:
    return Role.CALLED if role is Role.CALLER else Role.CALLER
