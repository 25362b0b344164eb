"""Authentication and authorization of requests to the API and the ingress: bearer tokens and rules. Pure.

Without tokens, every client may do everything. With tokens, every request needs one. With rules, a request
may do only what a rule allows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Protocol

from knative_gateway.errors import ForbiddenError, UnauthenticatedError
from knative_gateway.ports import Route
from knative_gateway.security.inward import user_of

ANONYMOUS: Final = "system:anonymous"


class Verb(StrEnum):
    """The kinds of permission."""

    READ = "read"
    """Objects, their history, watches."""
    WRITE = "write"
    """Objects: create, change, delete, replay."""
    SEND = "send"
    """Events, to Brokers and Channels."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that a token belongs to, with its groups."""

    user: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """Allows verbs to users or groups (patterns with `*`) in namespaces (patterns).

    Objects without a namespace, and lists over all namespaces, need a rule for the namespace `*`.
    """

    users: Sequence[str] = ()
    groups: Sequence[str] = ()
    verbs: Sequence[Verb] = tuple(Verb)
    namespaces: Sequence[str] = ("*",)

    def allows(self, identity: Identity, verb: Verb, namespace: str) -> bool:
        """Return whether this rule allows the request."""
        who = any(fnmatchcase(identity.user, pattern) for pattern in self.users)
        who = who or any(fnmatchcase(group, pattern) for group in identity.groups for pattern in self.groups)
        where = "*" in self.namespaces or (
            # An object without a namespace belongs to the whole cluster. A pattern such as `team-*` must not
            # match it.
            namespace != "" and any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)
        )
        return who and where and verb in self.verbs


class Tokens(Protocol):
    """Finds the user of a token."""

    def identity(self, token: str) -> Identity | None:
        """Return the user of the token; None if the token is not valid."""


class Access:
    """What the sender of one request may do with objects of one kind.

    A long request checks it again later.
    """

    def __init__(
        self, gate: "Gate", authorization: str | None, namespace: str, what: str, *, user: str
    ) -> None:
        self.user: Final = user
        """Who sent the request. The token may have been revoked since."""
        self._gate: Final = gate
        self._authorization: Final = authorization
        self._namespace: Final = namespace
        self._what: Final = what

    def check(self, verb: Verb) -> None:
        """Require the permission.

        Raises:
            UnauthenticatedError: the token is missing or not valid.
            ForbiddenError: no rule allows it.
        """
        self._gate.check(
            self._gate.identify(self._authorization), verb, namespace=self._namespace, what=self._what
        )

    def check_reference(self, namespace: str) -> None:
        """Require the right to read a namespace that an object refers to.

        The status shows parts of the object that it refers to, so the sender must be allowed to read it.
        """
        what = f"a reference to the namespace {namespace}"
        self._gate.check(self._gate.identify(self._authorization), Verb.READ, namespace=namespace, what=what)

    def may_read(self) -> bool:
        """Return whether the permission still exists. Tokens are revoked and expire, and rules change."""
        try:
            self.check(Verb.READ)
        except (ForbiddenError, UnauthenticatedError):
            return False
        return True


class Gate:
    """Checks tokens and rules. Implements `ports.Authorizer`."""

    def __init__(self, tokens: Iterable[Tokens] = (), rules: Sequence[Rule] = ()) -> None:
        self._tokens = tuple(tokens)
        self._rules = tuple(rules)

    def use(self, tokens: Iterable[Tokens], rules: Sequence[Rule]) -> None:
        """Replace the tokens and rules."""
        self._tokens, self._rules = tuple(tokens), tuple(rules)

    @property
    def open(self) -> bool:
        """Whether every client may do everything."""
        return not self._tokens

    def identify(self, authorization: str | None) -> Identity:
        """Return the user of a request. `authorization`: the value of the header.

        Raises:
            UnauthenticatedError: the token is missing or not valid.
        """
        if not self._tokens:
            return Identity(ANONYMOUS)
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            message = "the request has no bearer token"
            raise UnauthenticatedError(message)
        # Static tokens first: their lookup is a hash, and a JWT needs a signature to be verified.
        for tokens in self._tokens:
            found = tokens.identity(token.strip())
            # Users of the form system:namespace:NAME stand for the objects of a namespace. A token must not
            # claim to be one.
            if found is not None and not found.user.startswith(user_of("")):
                return found
        message = "the bearer token is not valid"
        raise UnauthenticatedError(message)

    def check(self, identity: Identity, verb: Verb, *, namespace: str, what: str) -> None:
        """Check the rules.

        Raises:
            ForbiddenError: no rule allows it.
        """
        if (
            not self._tokens
            or not self._rules
            or any(rule.allows(identity, verb, namespace) for rule in self._rules)
        ):
            return
        place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        message = f'{what} is forbidden: User "{identity.user}" cannot {verb} {place}'
        raise ForbiddenError(message)

    def may_pass(self, source: str, target: str) -> bool:
        """Return whether objects of one namespace may send events to another namespace.

        The rules for the user `inward.user_of(source)` decide.
        """
        sender = Identity(user_of(source))
        return (
            not self._tokens
            or not self._rules
            or any(rule.allows(sender, Verb.SEND, target) for rule in self._rules)
        )

    async def may_send(self, authorization: str | None, route: Route) -> None:
        """See `ports.Authorizer`."""
        if self._tokens:
            self.check(self.identify(authorization), Verb.SEND, namespace=route.namespace, what=route.path)
