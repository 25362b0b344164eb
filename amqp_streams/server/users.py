"""The users file: who may connect with a password.

    {"version": 1, "users": {"alice": {"argon2": "$argon2id$v=19$m=65536,t=3,p=4$…"}}}

One law: the file is written whole or not at all, by one process at a time, readable by its owner only. A user has a dictionary of
credentials by kind, so that other kinds can stand beside `argon2`; users that are not touched keep theirs as they are.

Verifying takes tens of milliseconds of CPU by design: call it in a thread, not on the event loop.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from amqp_streams.errors import ConfigError

VERSION: Final = 1
NAME_CHARACTERS_MAX: Final = 255
PASSWORD_CHARACTERS_MAX: Final = 1024
"""A bound on the work of one attempt; SASL frames are smaller than four times that anyway."""
FILE_BYTES_MAX: Final = 64 << 20
ARGON2: Final = "argon2"

Credentials = Mapping[str, object]


def user_name(name: str) -> str:
    """Check a user's name.

    Raises:
        ValueError: it is empty, longer than NAME_CHARACTERS_MAX, or has control characters.
    """
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX or any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        message = f"{name[:40]!r} is no name of a user: 1 to {NAME_CHARACTERS_MAX} characters, none of them a control character"
        raise ValueError(message)
    return name


class UsersFile:
    """The users of one file, as they were when it was last read. Safe to use from several threads."""

    def __init__(self, path: Path, users: Mapping[str, Credentials], *, stamp: tuple[int, int, int] | None, hasher: PasswordHasher) -> None:
        self._path: Final = path
        self._users = dict(users)
        self._stamp = stamp
        self._hasher: Final = hasher
        self._lock: Final = threading.Lock()
        self._nobody = ""

    @classmethod
    def load(cls, path: Path, *, hasher: PasswordHasher | None = None) -> Self:
        """Read the file; one that does not exist has no users and is made by the first `add`.

        Raises:
            ConfigError: it cannot be read, is not of this form, or others than its owner may read it.
        """
        users, stamp = _read(path)
        return cls(path, users, stamp=stamp, hasher=hasher or PasswordHasher())

    @property
    def names(self) -> list[str]:
        """The users, sorted."""
        return sorted(self._users)

    def add(self, name: str, password: str) -> bool:
        """Add a user or give it a new password; durable when this returns. True: it is new.

        Raises:
            ValueError: the name or the password cannot be.
            ConfigError: the file cannot be read or written.
        """
        user_name(name)
        if not 1 <= len(password) <= PASSWORD_CHARACTERS_MAX or "\0" in password:
            message = f"a password has 1 to {PASSWORD_CHARACTERS_MAX} characters, none of them NUL"
            raise ValueError(message)
        hashed = self._hasher.hash(password)
        with self._lock, _alone(self._path):
            self._refresh()
            new = name not in self._users
            # The other kinds were made from the old password.
            self._write({**self._users, name: {ARGON2: hashed}})
        return new

    def remove(self, name: str) -> bool:
        """Remove a user; durable when this returns. False: there is none of this name.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._lock, _alone(self._path):
            self._refresh()
            if name not in self._users:
                return False
            self._write({known: credentials for known, credentials in self._users.items() if known != name})
        return True

    def reload(self) -> bool:
        """Read the file again if it changed since; True if it did.

        Raises:
            ConfigError: as `load`; what was read before stays in force.
        """
        with self._lock:
            return self._refresh()

    def verify(self, name: str, password: str) -> bool:
        """Whether this is the user's password. Takes as long for a user that there is not."""
        if not self._nobody:
            # What an unknown user's password is compared with, so that the time taken does not tell who exists.
            self._nobody = self._hasher.hash("nobody")
        credentials = self._users.get(name, {})
        stored = credentials.get(ARGON2)
        known = isinstance(stored, str)
        try:
            matches = self._hasher.verify(stored if isinstance(stored, str) else self._nobody, password[:PASSWORD_CHARACTERS_MAX])
        except (VerificationError, InvalidHashError, UnicodeError):
            return False
        return matches and known and len(password) <= PASSWORD_CHARACTERS_MAX

    def _refresh(self) -> bool:
        if _stamp(self._path) == self._stamp:
            return False
        self._users, self._stamp = _read(self._path)
        return True

    def _write(self, users: dict[str, Credentials]) -> None:
        text = json.dumps({"version": VERSION, "users": users}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        try:
            _replace(self._path, text.encode())
        except OSError as error:
            message = f"the users file {self._path} cannot be written: {error.strerror}"
            raise ConfigError(message) from error
        self._users, self._stamp = users, _stamp(self._path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process changes the file meanwhile; it may be read. The empty lock file stays."""
    try:
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the users file {path} cannot be written: {error.strerror}"
        raise ConfigError(message) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file does: it is replaced, never written in place; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: Path) -> tuple[dict[str, Credentials], tuple[int, int, int] | None]:
    stamp = _stamp(path)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        message = f"the users file {path} cannot be read: {error.strerror}"
        raise ConfigError(message) from error
    if mode & 0o077:
        message = f"the users file {path} is open to others (mode {mode & 0o777:04o}): chmod 600 {path}"
        raise ConfigError(message)
    if len(data) > FILE_BYTES_MAX:
        message = f"the users file {path} has more than {FILE_BYTES_MAX} bytes"
        raise ConfigError(message)
    return _parse(path, data), stamp


def _parse(path: Path, data: bytes) -> dict[str, Credentials]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        message = f"the users file {path} is no JSON: {error}"
        raise ConfigError(message) from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        message = f"the users file {path} is not of version {VERSION}, the one that this program reads"
        raise ConfigError(message)
    users = document.get("users")
    if not isinstance(users, dict) or not all(isinstance(credentials, dict) for credentials in users.values()):
        message = f'the users file {path}: "users" must be an object of objects'
        raise ConfigError(message)
    try:
        return {user_name(name): credentials for name, credentials in users.items()}
    except ValueError as error:
        message = f"the users file {path}: {error}"
        raise ConfigError(message) from error


def _replace(path: Path, data: bytes) -> None:
    """Write beside, sync, rename, sync the folder: after a crash the old file is there, or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
