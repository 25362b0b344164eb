"""The users file: who may connect with a password.

    {"version": 1, "salt_key": "…", "users": {"alice": {
        "argon2": "$argon2id$v=19$m=65536,t=3,p=4$…",
        "scram-sha-256": "SCRAM-SHA-256$100000:SALT$STOREDKEY:SERVERKEY", "scram-sha-512":
        "SCRAM-SHA-512$…"}}}

One law: the file is written whole or not at all, by one process at a time, readable by its owner only. A user
has credentials by kind; all are made from one password, and users that are not touched keep theirs as they
are. `salt_key` makes the salts of users that there are not.

Verifying a password takes tens of milliseconds of CPU by design: call it in a thread, not on the event loop.
Keys are just looked up.
"""

import base64
import binascii
import contextlib
import fcntl
import json
import os
import secrets
import tempfile
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from amqp_streams.errors import ConfigError
from amqp_streams.wire.security.mechanisms import ScramAlgorithm, ScramKeys
from amqp_streams.wire.security.saslprep import (
    NAME_CHARACTERS_MAX,
    PreparationError,
    prepared_name,
    prepared_or_same,
    saslprep,
)
from amqp_streams.wire.security.scram import SALT_BYTES, format_keys, make_keys, parse_keys, unmeetable_keys

VERSION: Final = 1
PASSWORD_CHARACTERS_MAX: Final = 1024
"""Limits the work of one attempt. The limit on SASL frames is below four times this size."""
FILE_BYTES_MAX: Final = 64 << 20
ARGON2: Final = "argon2"
SCRAM_ITERATIONS: Final = 100_000
"""The work for each guess of an attacker who has the file, and for each client that connects.
docs/decisions/0006-scram-iterations.md explains the number.
"""

_SECRET_BYTES: Final = 32

Credentials = Mapping[str, object]


def user_name(name: str) -> str:
    """Check the name of a user, and return it.

    Raises:
        ValueError: it is empty, longer than NAME_CHARACTERS_MAX, or has control characters.
    """
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX or any(
        unicodedata.category(character) in {"Cc", "Cs"} for character in name
    ):
        message = (
            f"{name[:40]!r} is not a valid user name: use 1 to {NAME_CHARACTERS_MAX} characters and no"
            " control characters"
        )
        raise ValueError(message)
    return name


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of the file.

    `called`: the name in the file, by the name itself and by its form after SASLprep. `iterations`: the
    different numbers of iterations among the stored keys. `stamp`: see `_stamp`.
    """

    users: Mapping[str, Credentials]
    secret: bytes
    stamp: tuple[int, int, int] | None
    called: Mapping[str, str]
    iterations: Mapping[ScramAlgorithm, Sequence[int]]

    @classmethod
    def of(cls, users: Mapping[str, Credentials], secret: bytes, stamp: tuple[int, int, int] | None) -> Self:
        called = {prepared_or_same(name): name for name in users} | {name: name for name in users}
        iterations = {algorithm: sorted(set(_iterations(users, algorithm))) for algorithm in ScramAlgorithm}
        return cls(users, secret, stamp, called, iterations)


class UsersFile:
    """The users of one file, as last read. Safe to use from several threads."""

    def __init__(
        self, path: Path, contents: _Contents, *, hasher: PasswordHasher, scram_iterations: int
    ) -> None:
        self._path: Final = path
        self._contents = contents
        self._hasher: Final = hasher
        self._scram_iterations: Final = scram_iterations
        self._lock: Final = threading.Lock()
        self._unknown_hash = ""

    @classmethod
    def load(
        cls, path: Path, *, hasher: PasswordHasher | None = None, scram_iterations: int = SCRAM_ITERATIONS
    ) -> Self:
        """Read the file. If it does not exist, the list is empty, and the first `add` creates it.

        `scram_iterations`: for new passwords.

        Raises:
            ConfigError: it cannot be read, is not in this format, or other users of the machine can access
            it.
        """
        return cls(
            path,
            _read(path, secrets.token_bytes(_SECRET_BYTES)),
            hasher=hasher or PasswordHasher(),
            scram_iterations=scram_iterations,
        )

    @property
    def names(self) -> list[str]:
        """The names of the users, sorted."""
        return sorted(self._contents.users)

    def called(self, name: str) -> str | None:
        """The user's name in the file, for the name that a client sent. None: the user does not exist."""
        called = self._contents.called
        return called.get(name) or (
            called.get(prepared_name(name)) if len(name) <= NAME_CHARACTERS_MAX else None
        )

    # -- changes

    def add(self, name: str, password: str) -> bool:
        """Add a user, or set a new password for a known user. Returns True if the user is new.

        When it returns, the change is durable. If the name or the password has characters that SASLprep
        prohibits, the user can log in with PLAIN only: see `has_keys`.

        Raises:
            ValueError: the name or the password is not valid.
            ConfigError: the file cannot be read or written.
        """
        user_name(name)
        if not 1 <= len(password) <= PASSWORD_CHARACTERS_MAX or "\0" in password:
            message = f"a password must have 1 to {PASSWORD_CHARACTERS_MAX} characters, and no NUL character"
            raise ValueError(message)
        credentials: dict[str, object] = {ARGON2: self._hasher.hash(prepared_or_same(password))}
        try:
            name, prepared = user_name(saslprep(name, stored=True)), saslprep(password, stored=True)
        except PreparationError:
            pass  # the user can log in with PLAIN only: see the docstring
        else:
            credentials |= {
                algorithm.lower(): self._made_keys(algorithm, name, prepared) for algorithm in ScramAlgorithm
            }
        with self._lock, _alone(self._path):
            self._refresh()
            known = self.called(name)
            # Replaces all credentials of the user: those of other kinds were made from the old password.
            self._write(
                {other: kept for other, kept in self._contents.users.items() if other != known}
                | {name: credentials}
            )
        return known is None

    def _made_keys(self, algorithm: ScramAlgorithm, name: str, password: str) -> str:
        salt = secrets.token_bytes(SALT_BYTES)
        return format_keys(
            algorithm, make_keys(algorithm, name, password, salt=salt, iterations=self._scram_iterations)
        )

    def remove(self, name: str) -> bool:
        """Remove a user. Returns False if the user does not exist. The change is then durable.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._lock, _alone(self._path):
            self._refresh()
            known = self.called(name)
            if known is None:
                return False
            self._write({other: kept for other, kept in self._contents.users.items() if other != known})
        return True

    def reload(self) -> bool:
        """Read the file again if it has changed. Returns True if it has.

        Raises:
            ConfigError: as `load`, or the file existed before and is missing. The users that were read before
            stay in force.
        """
        with self._lock:
            if self._contents.stamp is not None and _stamp(self._path) is None:
                message = (
                    f"the users file {self._path} is missing: restore it, or restart the node to run without"
                    " users"
                )
                raise ConfigError(message)
            return self._refresh()

    # -- questions

    def verify(self, name: str, password: str) -> bool:
        """Whether this is the user's password. Takes equally long for an unknown user."""
        if not self._unknown_hash:
            # The hash that is checked for an unknown user: answering at once would reveal which users exist.
            self._unknown_hash = self._hasher.hash("unknown user")
        stored = self._credentials(name).get(ARGON2)
        # Older versions hashed the password without SASLprep.
        forms = dict.fromkeys(
            (prepared_or_same(password[:PASSWORD_CHARACTERS_MAX]), password[:PASSWORD_CHARACTERS_MAX])
        )
        matches = [
            self._matches(stored if isinstance(stored, str) else self._unknown_hash, form) for form in forms
        ]
        return any(matches) and isinstance(stored, str) and len(password) <= PASSWORD_CHARACTERS_MAX

    def keys(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
        """The user's SCRAM keys.

        For an unknown user or a user without keys: keys that look like real ones and that no password
        matches. The work is the same in all cases.
        """
        own = self.called(name) or prepared_name(name)
        lure = format_keys(algorithm, self._lure(own, algorithm))
        stored = self._credentials(name).get(algorithm.lower())
        return parse_keys(algorithm, own, stored if isinstance(stored, str) else lure)

    def _lure(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
        contents = self._contents
        counts = contents.iterations[algorithm] or (self._scram_iterations,)
        keys = unmeetable_keys(algorithm, name, secret=contents.secret, iterations=counts[0])
        # Where users have different counts, the name determines which count is shown, as it determines the
        # salt.
        return replace(keys, iterations=counts[keys.salt[0] % len(counts)])

    def has_keys(self, name: str, algorithm: ScramAlgorithm) -> bool:
        """Whether this user has keys for this algorithm.

        A user that was added before SCRAM was supported needs a new password first.
        """
        return isinstance(self._credentials(name).get(algorithm.lower()), str)

    def offers(self, algorithm: ScramAlgorithm) -> bool:
        """Whether any user has keys for this algorithm.

        If none has, the node does not offer it, because clients would choose it and fail.
        """
        return bool(self._contents.iterations[algorithm])

    def _credentials(self, name: str) -> Credentials:
        known = self.called(name)
        return {} if known is None else self._contents.users[known]

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError, UnicodeError):
            # Also an entry that is damaged, or a password that is not text: neither may log in, and the log
            # has the failure.
            return False

    def _refresh(self) -> bool:
        if _stamp(self._path) == self._contents.stamp:
            return False
        self._contents = _read(self._path, self._contents.secret)
        return True

    def _write(self, users: dict[str, Credentials]) -> None:
        secret = self._contents.secret
        document = {"version": VERSION, "salt_key": base64.b64encode(secret).decode(), "users": users}
        text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        try:
            _replace(self._path, text.encode())
        except OSError as error:
            message = f"cannot write the users file {self._path}: {error.strerror}"
            raise ConfigError(message) from error
        self._contents = _Contents.of(users, secret, _stamp(self._path))


def _iterations(users: Mapping[str, Credentials], algorithm: ScramAlgorithm) -> Iterator[int]:
    for name, credentials in users.items():
        stored = credentials.get(algorithm.lower())
        if isinstance(stored, str):
            yield parse_keys(algorithm, name, stored).iterations


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the file against changes by other processes, which can still read it.

    The empty lock file is not removed. If it were, a process that already waits for it would lock the removed
    file, and the next process would create a new one and lock that: both would write.

    Raises:
        ConfigError: the lock file cannot be created.
    """
    try:
        descriptor = os.open(
            path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        message = f"cannot write the users file {path}: {error.strerror}"
        raise ConfigError(message) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes with the file, because the file is always replaced and never written in place.

    None: the file does not exist.
    """
    try:
        status = path.stat()
    except OSError:
        # A file that cannot be read now has no stamp: the next change of the stamp reloads it.
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: Path, secret: bytes) -> _Contents:
    """Read the file. `secret`: the salt key to use if the file has none.

    Raises:
        ConfigError: see `UsersFile.load`.
    """
    # Before the file is read: if the file is replaced in between, the next refresh reads it again.
    stamp = _stamp(path)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return _Contents.of({}, secret, None)
    except OSError as error:
        message = f"cannot read the users file {path}: {error.strerror}"
        raise ConfigError(message) from error
    if mode & 0o077:
        message = (
            f"other users can access the users file {path} (mode {mode & 0o777:04o}): run chmod 600 {path}"
        )
        raise ConfigError(message)
    if len(data) > FILE_BYTES_MAX:
        message = f"the users file {path} is larger than {FILE_BYTES_MAX} bytes"
        raise ConfigError(message)
    users, own = _parse(path, data)
    return _Contents.of(users, own or secret, stamp)


def _parse(path: Path, data: bytes) -> tuple[dict[str, Credentials], bytes]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        message = f"the users file {path} is not valid JSON: {error}"
        raise ConfigError(message) from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        message = (
            f"the users file {path} does not have version {VERSION}, the only version that this program reads"
        )
        raise ConfigError(message)
    users = document.get("users")
    if not isinstance(users, dict) or not all(
        isinstance(credentials, dict) for credentials in users.values()
    ):
        message = f'the users file {path}: "users" must be an object of objects'
        raise ConfigError(message)
    try:
        for name, credentials in users.items():
            user_name(name)
            for algorithm in ScramAlgorithm:
                if algorithm.lower() in credentials:
                    _check_keys(algorithm, name, str(credentials[algorithm.lower()]))
        return users, base64.b64decode(str(document.get("salt_key", "")), validate=True)
    except (ValueError, binascii.Error) as error:
        message = f"the users file {path}: {error}"
        raise ConfigError(message) from error


def _check_keys(algorithm: ScramAlgorithm, name: str, text: str) -> None:
    try:
        parse_keys(algorithm, name, text)
    except ValueError as error:
        message = f"user {name}: {error}"
        raise ValueError(message) from error


def _replace(path: Path, data: bytes) -> None:
    """Write a temporary file, sync it, rename it, sync the folder.

    After a crash, either the old file or the new one exists.
    """
    # mkstemp creates it with mode 0600
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    # Also after Ctrl-C: no temporary file with hashes must stay behind.
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
