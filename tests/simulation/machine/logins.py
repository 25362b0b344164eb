"""Users with passwords and rights, as a node of the simulation reads them, and what clients log in with."""

from functools import cache
from typing import Final

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.config import NodeSettings
from amqp_streams.policy import AccessRule, Right
from amqp_streams.wire.security.mechanisms import ScramAlgorithm, ScramKeys
from amqp_streams.wire.security.scram import ITERATIONS_MIN, make_keys, unmeetable_keys
from service_parts.settings.choices import AnonymousAccess

PLAIN_USER: Final = "user-plain"
"""Clients that are anonymous in worlds without logins."""
ALGORITHM: Final = ScramAlgorithm.SHA_256
_SECRET: Final = bytes(32)


@cache
def _keys(user: str) -> ScramKeys:
    return make_keys(
        ALGORITHM, user, password_of(user), salt=user.encode()[:16].ljust(16), iterations=ITERATIONS_MIN
    )


@cache
def _lure(user: str) -> ScramKeys:
    return unmeetable_keys(ALGORITHM, user, secret=_SECRET, iterations=ITERATIONS_MIN)


def password_of(user: str) -> str:
    """The password of a user."""
    return f"the password of {user}"


class Users:
    """The users file of a process, in memory: `guard.KeyStore`, and what a reload of the node needs."""

    def __init__(self, logins: "Logins") -> None:
        self._logins: Final = logins
        self._names: frozenset[str] = logins.users

    @property
    def names(self) -> list[str]:
        """See `UsersFile`."""
        return sorted(self._names)

    def reload(self) -> bool:
        """See `UsersFile`."""
        before, self._names = self._names, self._logins.users
        return before != self._names

    def called(self, name: str) -> str | None:
        """See `KeyStore`."""
        return name if name in self._names else None

    def offers(self, algorithm: ScramAlgorithm) -> bool:
        """See `KeyStore`."""
        return algorithm is ALGORITHM

    def has_keys(self, name: str, algorithm: ScramAlgorithm) -> bool:
        """See `KeyStore`."""
        return self.offers(algorithm) and name in self._names

    def keys(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
        """See `KeyStore`."""
        assert algorithm is ALGORITHM
        return _keys(name) if name in self._names else _lure(name)

    def verify(self, name: str, password: str) -> bool:
        """See `PasswordCheck`."""
        raise AssertionError((name, password))


class Logins:
    """The users and the access rules that the files of a node have now.

    `rightful`: users with all rights. `strangers`: users that may log in, and have no right.
    """

    def __init__(self, rightful: frozenset[str], strangers: frozenset[str]) -> None:
        self.rightful: Final = rightful
        self.strangers: Final = strangers
        self.removed: set[str] = set()
        """These users are not in the users file now."""
        self.revoked: set[str] = set()
        """These users have no rights now."""
        self.once_removed: set[str] = set()
        self.once_revoked: set[str] = set()
        self.in_force: frozenset[str] = rightful
        """The users that had rights when the node read its files for the last time."""

    @property
    def users(self) -> frozenset[str]:
        """The users in the users file."""
        return (self.rightful | self.strangers) - self.removed

    def settings(self, settings: NodeSettings) -> NodeSettings:
        """The settings of a node that reads the files now."""
        self.in_force = self.rightful - self.revoked - self.removed
        rules = [
            AccessRule(users=(user,), logs=("*",), allow=tuple(Right))
            for user in sorted(self.rightful - self.revoked)
        ]
        # A rule for a log that does not exist: with no rule at all, every user would have every right.
        rules.append(AccessRule(users=("anonymous",), logs=("nothing",), allow=(Right.INFO,)))
        return settings.model_copy(update={"access": tuple(rules), "anonymous": AnonymousAccess.NEVER})

    def remove(self, user: str) -> None:
        """Remove a user from the users file."""
        self.removed.add(user)
        self.once_removed.add(user)

    def revoke(self, user: str) -> None:
        """Take all rights of a user away."""
        self.revoked.add(user)
        self.once_revoked.add(user)

    def restore(self) -> None:
        """Each user is in the users file, with its rights."""
        self.removed.clear()
        self.revoked.clear()

    def credentials(self, user: str | None, *, nonce: str, password: str | None = None) -> Credentials:
        """What a client logs in with."""
        name = user or PLAIN_USER
        return Credentials(name, password or password_of(name), only=(ALGORITHM,), nonce=lambda: nonce)
