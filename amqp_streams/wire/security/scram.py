"""SCRAM: both sides prove that they know the password, and neither sends it (RFC 5802; RFC 7677 for SHA-256).

    client  n,,n=user,r=CNONCE                       ->
            <-  r=CNONCE SNONCE,s=salt,i=iterations      server
    client  c=gs2 header,r=both nonces,p=proof       ->
            <-  v=signature, with the outcome            server

The server stores `ScramKeys`. Law: an unknown user gets keys of the same form that no proof matches, so that
an attacker cannot find out which users exist. Channel binding is not offered: a client that requires it
(`p=`) is refused, one that only supports it (`y`) is accepted. Nonces are arguments.
"""

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum
from functools import lru_cache
from typing import Final

from amqp_streams.errors import AmqpStreamsError
from amqp_streams.wire.security.mechanisms import (
    Answer,
    Challenge,
    Failure,
    FindKeys,
    ScramAlgorithm,
    ScramKeys,
    Step,
    Success,
)
from amqp_streams.wire.security.saslprep import NAME_CHARACTERS_MAX, prepared_name, prepared_or_same

ITERATIONS_MIN: Final = 4096
"""The fewest iterations, from RFC 7677. A client that accepted fewer would let a false server guess its
password quickly.
"""
ITERATIONS_MAX: Final = 5_000_000
"""The most iterations that a client accepts: a malicious server can make it compute for some seconds at most.
"""
SALT_BYTES: Final = 16
NONCE_CHARACTERS_MAX: Final = 1024

_PRINTABLE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ESCAPE: Final = re.compile(r"=(2C|3D)?")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z]=[^\0]*")


class ScramError(AmqpStreamsError):
    """The peer does not follow SCRAM, or does not know the password."""


# -- keys


@lru_cache(maxsize=64)
def salted_password(algorithm: ScramAlgorithm, password: str, salt: bytes, iterations: int) -> bytes:
    """Return SaltedPassword of RFC 5802, section 3, the slow part of a login.

    It is cached for clients that reconnect.
    """
    return hashlib.pbkdf2_hmac(algorithm.digest, prepared_or_same(password).encode(), salt, iterations)


def make_keys(
    algorithm: ScramAlgorithm, user: str, password: str, *, salt: bytes, iterations: int
) -> ScramKeys:
    """Return the keys that a server stores for a password.

    Slow for many `iterations`: do not call it on an event loop. The password is not cached.
    """
    # Around the cache: a password that is set must not stay in memory.
    salted = salted_password.__wrapped__(algorithm, password, salt, iterations)
    client_key = _hmac(algorithm, salted, b"Client Key")
    return ScramKeys(
        user,
        salt,
        iterations,
        hashlib.new(algorithm.digest, client_key).digest(),
        _hmac(algorithm, salted, b"Server Key"),
    )


def unmeetable_keys(algorithm: ScramAlgorithm, user: str, *, secret: bytes, iterations: int) -> ScramKeys:
    """Return keys for an unknown user: always the same salt for a name, and keys that no proof matches.

    `secret` must stay on the server: a client that knows it can distinguish these keys from real ones.
    """

    def part(label: str) -> bytes:
        return _hmac(algorithm, secret, f"{label}\0{algorithm}\0{user}".encode("utf-8", "surrogatepass"))

    return ScramKeys(user, part("salt")[:SALT_BYTES], iterations, part("stored"), part("server"))


def format_keys(algorithm: ScramAlgorithm, keys: ScramKeys) -> str:
    """Return keys as text: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, in base64 (RFC 5803)."""
    salt, stored, server = (
        base64.b64encode(part).decode() for part in (keys.salt, keys.stored_key, keys.server_key)
    )
    return f"{algorithm}${keys.iterations}:{salt}${stored}:{server}"


def parse_keys(algorithm: ScramAlgorithm, user: str, text: str) -> ScramKeys:
    """Parse the text of `format_keys`.

    Raises:
        ValueError: the text has another form, or the iterations are out of bounds.
    """
    name, _, rest = text.partition("$")
    first, _, second = rest.partition("$")
    iterations, _, salt = first.partition(":")
    stored, _, server = second.partition(":")
    try:
        salt_bytes, stored_key, server_key = (
            base64.b64decode(part, validate=True) for part in (salt, stored, server)
        )
    except binascii.Error as error:
        message = f"not valid keys of {algorithm}: {error}"
        raise ValueError(message) from error
    # Keys of a wrong length would never match, so the user could not log in and would not learn why.
    size = hashlib.new(algorithm.digest).digest_size
    good = (
        name == algorithm
        and iterations.isdecimal()
        and iterations.isascii()
        and salt_bytes
        and (len(stored_key), len(server_key)) == (size, size)
    )
    # At most nine digits are converted: `int` of a long text is slow.
    if not good or not ITERATIONS_MIN <= int(iterations[:9]) <= ITERATIONS_MAX:
        message = f"not valid keys of {algorithm}: expected {algorithm}$ITERATIONS:SALT$STOREDKEY:SERVERKEY"
        raise ValueError(message)
    return ScramKeys(user, salt_bytes, int(iterations), stored_key, server_key)


# -- the server's side


class _State(Enum):
    FIRST = "first"
    KEYS = "keys"
    FINAL = "final"


class ScramServer:
    """One login attempt (`mechanisms.Mechanism`). `nonce`: fresh, random, printable, without a comma."""

    def __init__(self, algorithm: ScramAlgorithm, *, nonce: str) -> None:
        self.claimed: str | None = None
        self._algorithm: Final = algorithm
        self._own_nonce: Final = nonce
        self._state = _State.FIRST
        self._header = b""
        self._first = ""
        self._nonce = ""
        self._identity = ""
        self._server_first = ""
        self._keys: ScramKeys | None = None

    def start(self, initial: bytes | None) -> Step:
        """Handle the initial response. Without one, return an empty challenge, which asks for the message."""
        return Challenge(b"") if initial is None else self.respond(initial)

    def respond(self, data: bytes) -> Step:
        """Handle the client's first or final message."""
        try:
            text = data.decode()
            return self._client_first(text) if self._state is _State.FIRST else self._client_final(text)
        except UnicodeDecodeError:
            return Failure("the message is not UTF-8")
        except ScramError as error:
            return Failure(str(error))

    def answered(self, answer: Answer) -> Step:
        """Handle the keys that were asked for: the user's, or keys that no proof matches."""
        # The shell may answer with a failure instead.
        if not isinstance(answer, ScramKeys):
            return answer
        assert self._state is _State.KEYS, self._state
        self._keys, self._state = answer, _State.FINAL
        salt = base64.b64encode(answer.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={answer.iterations}"
        return Challenge(self._server_first.encode())

    def _client_first(self, text: str) -> Step:
        flag, identity, bare = _split(text, 3)
        if flag.startswith("p="):
            message = "the client requires channel binding, which is not offered"
            raise ScramError(message)
        if flag not in {"n", "y"} or not (identity == "" or identity.startswith("a=")):
            message = "the message has no GS2 header"
            raise ScramError(message)
        # Attributes may be missing: the empty texts stand for them and fail the checks below.
        name, nonce, *_ = [*_attributes(bare), "", ""]
        # This also refuses `m=`, a mandatory extension (RFC 5802, 5.1): this server supports none.
        if not name.startswith("n=") or not nonce.startswith("r="):
            message = "the message does not begin with a user and a nonce"
            raise ScramError(message)
        if not _PRINTABLE.fullmatch(nonce[2:]) or len(nonce) > NONCE_CHARACTERS_MAX:
            message = "the nonce is not valid"
            raise ScramError(message)
        # `claimed` before any further check, so that limits and the log know the name of a failed attempt.
        self._identity, self.claimed = _name(identity[2:]), _name(name[2:])
        if not self.claimed:
            message = "the user name is empty"
            raise ScramError(message)
        if self._identity and prepared_name(self._identity) != prepared_name(self.claimed):
            message = "a user cannot act for another user"
            raise ScramError(message)
        self._header, self._first, self._nonce = (
            f"{flag},{identity},".encode(),
            bare,
            nonce[2:] + self._own_nonce,
        )
        self._state = _State.KEYS
        return FindKeys(self.claimed, self._algorithm)

    def _client_final(self, text: str) -> Step:
        assert self._keys is not None
        without_proof, _, proof = text.rpartition(",p=")
        binding, nonce, *_ = [*_attributes(without_proof), "", ""]
        # The header is repeated under the proof: an attacker in between cannot change what the client said of
        # channel binding.
        if not binding.startswith("c=") or _decoded(binding[2:]) != self._header:
            message = "the GS2 header differs from that of the first message"
            raise ScramError(message)
        if not hmac.compare_digest(nonce.encode(), f"r={self._nonce}".encode()):
            message = "the nonce differs from the server's"
            raise ScramError(message)
        # Both sides sign the whole exchange, so a changed message is noticed.
        said = f"{self._first},{self._server_first},{without_proof}".encode()
        signature = _hmac(self._algorithm, self._keys.stored_key, said)
        # The server never stores the client's key: it recovers the key from the proof and compares its hash.
        client_key = _xor(_decoded(proof), signature)
        # In constant time: the duration must not show how many bytes match.
        if not hmac.compare_digest(
            hashlib.new(self._algorithm.digest, client_key).digest(), self._keys.stored_key
        ):
            # One text for both, so that an attacker does not learn which users exist.
            return Failure("wrong user or password")
        verifier = base64.b64encode(_hmac(self._algorithm, self._keys.server_key, said))
        return Success(self._keys.user, b"v=" + verifier)


# -- the client's side


class ScramClient:
    """One attempt: `first`, then `final` with the server's challenge, then `finish` with its signature.

    `nonce` as for the server.
    """

    def __init__(self, algorithm: ScramAlgorithm, user: str, password: str, *, nonce: str) -> None:
        name = prepared_or_same(user).replace("=", "=3D").replace(",", "=2C")
        self.complete = False
        """Whether the server has proved that it knows the password."""
        self._algorithm: Final = algorithm
        self._password: Final = password
        self._nonce: Final = nonce
        self._bare: Final = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the final message.

        Slow in proportion to the server's iterations, except for a password and a salt that are cached.

        Raises:
            ScramError: the challenge is not valid, or requires too few or too many iterations.
        """
        text = _text(challenge)
        nonce, salt, iterations, *_ = [*_attributes(text), "", "", ""]
        # A nonce that does not continue ours, or adds nothing, could be a replay of an earlier exchange.
        if not (
            nonce.startswith("r=" + self._nonce) and len(nonce) > len(self._nonce) + 2
        ) or not salt.startswith("s="):
            message = "the server does not follow SCRAM"
            raise ScramError(message)
        # Before the computation: its cost and its strength are what the server chooses here.
        if (
            not re.fullmatch(r"i=[0-9]{1,9}", iterations)
            or not ITERATIONS_MIN <= int(iterations[2:]) <= ITERATIONS_MAX
        ):
            message = (
                f"the server's iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX} (got"
                f" {iterations[2:20]})"
            )
            raise ScramError(message)
        salted = salted_password(self._algorithm, self._password, _decoded(salt[2:]), int(iterations[2:]))
        client_key = _hmac(self._algorithm, salted, b"Client Key")
        # "biws" is "n,," in base64, the header of the first message.
        without_proof = f"c=biws,{nonce}"
        said = f"{self._bare},{text},{without_proof}".encode()
        stored_key = hashlib.new(self._algorithm.digest, client_key).digest()
        proof = base64.b64encode(_xor(client_key, _hmac(self._algorithm, stored_key, said)))
        self._signature = _hmac(self._algorithm, _hmac(self._algorithm, salted, b"Server Key"), said)
        return f"{without_proof},p={proof.decode()}".encode()

    def finish(self, data: bytes) -> None:
        """Check the server's signature; then `complete` is true.

        Raises:
            ScramError: the server refused, or its signature does not prove that it knows the password.

        """
        text = _text(data)
        if text.startswith("e="):
            message = f"the server refused: {text[2:80]}"
            raise ScramError(message)
        verifier = _attributes(text)[0]
        # Without `final`, the expected signature is empty, and an empty one would match.
        if (
            not self._signature
            or not verifier.startswith("v=")
            or not hmac.compare_digest(_decoded(verifier[2:]), self._signature)
        ):
            message = "the server did not prove that it knows the password"
            raise ScramError(message)
        self.complete = True


# -- messages


def _hmac(algorithm: ScramAlgorithm, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, algorithm.digest)


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        message = "the proof has the wrong length"
        raise ScramError(message)
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        message = "the message is not UTF-8"
        raise ScramError(message) from None


def _split(text: str, count: int) -> list[str]:
    parts = text.split(",", count - 1)
    if len(parts) < count:
        message = "the message has too few parts"
        raise ScramError(message)
    return parts


def _attributes(text: str) -> list[str]:
    parts = text.split(",")
    if not all(_ATTRIBUTE.fullmatch(part) for part in parts):
        message = "the message is not a list of attributes"
        raise ScramError(message)
    return parts


def _name(escaped: str) -> str:
    """Decode a saslname: `=2C` is a comma, `=3D` an equals sign; other equals signs are not valid."""

    def unescaped(found: re.Match[str]) -> str:
        if found[1] is None:
            message = "the user name has a lone equals sign"
            raise ScramError(message)
        return "," if found[1] == "2C" else "="

    name = _ESCAPE.sub(unescaped, escaped)
    if len(name) > NAME_CHARACTERS_MAX:
        message = f"the user name has more than {NAME_CHARACTERS_MAX} characters"
        raise ScramError(message)
    return name


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        message = "a value is not valid base64"
        raise ScramError(message) from None
