"""Who sends a request, and what they may: bearer tokens and rules, for the API and for the ingress. Pure.

Laws: without tokens everybody may do everything; with tokens nobody may without one of them; with rules only what a rule allows.
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
    """What a rule allows."""

    READ = "read"
    """Objects, their history, watches."""
    WRITE = "write"
    """Objects: create, change, delete, replay."""
    SEND = "send"
    """Events, to Brokers and Channels."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody was found to be."""

    user: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """Users or groups (patterns with `*`), what they may, and in which namespaces (patterns).

    What has no namespace, and lists over all of them, need a rule for `*`.
    """

    users: Sequence[str] = ()
    groups: Sequence[str] = ()
    verbs: Sequence[Verb] = tuple(Verb)
    namespaces: Sequence[str] = ("*",)

    def allows(self, identity: Identity, verb: Verb, namespace: str) -> bool:
        """Whether this rule lets it pass."""
        who = any(fnmatchcase(identity.user, pattern) for pattern in self.users)
        who = who or any(fnmatchcase(group, pattern) for group in identity.groups for pattern in self.groups)
        where = "*" in self.namespaces or (namespace != "" and any(fnmatchcase(namespace, pattern) for pattern in self.namespaces))
        return who and where and verb in self.verbs


class Tokens(Protocol):
    """Knows whose a token is."""

    def identity(self, token: str) -> Identity | None:
        """Whose; None: it is not believed."""


class Access:
    """The permission of one request's sender for a kind of object; can be checked again later."""

    def __init__(self, gate: "Gate", authorization: str | None, namespace: str, what: str) -> None:
        self._gate: Final = gate
        self._authorization: Final = authorization
        self._namespace: Final = namespace
        self._what: Final = what

    def check(self, verb: Verb) -> None:
        """Require the permission. Raises UnauthenticatedError, ForbiddenError."""
        self._gate.check(self._gate.identify(self._authorization), verb, namespace=self._namespace, what=self._what)

    def check_reference(self, namespace: str) -> None:
        """Let an object refer to another namespace: its status would show these objects to users who may not read them."""
        what = f"a reference to the namespace {namespace}"
        self._gate.check(self._gate.identify(self._authorization), Verb.READ, namespace=namespace, what=what)

    def may_read(self) -> bool:
        """Whether the permission still holds: tokens are revoked and expire, rules change."""
        try:
            self.check(Verb.READ)
        except (ForbiddenError, UnauthenticatedError):
            return False
        return True


class Gate:
    """The one who asks for tokens. Implements `ports.Authorizer`."""

    def __init__(self, tokens: Iterable[Tokens] = (), rules: Sequence[Rule] = ()) -> None:
        self._tokens = tuple(tokens)
        self._rules = tuple(rules)

    def use(self, tokens: Iterable[Tokens], rules: Sequence[Rule]) -> None:
        """Ask for these from now on."""
        self._tokens, self._rules = tuple(tokens), tuple(rules)

    @property
    def open(self) -> bool:
        """Whether everybody may do everything."""
        return not self._tokens

    def identify(self, authorization: str | None) -> Identity:
        """Who sends this. `authorization` is the header's value.

        Raises:
            UnauthenticatedError: nobody, or somebody whose word does not count.
        """
        if not self._tokens:
            return Identity(ANONYMOUS)
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            message = "a bearer token is needed"
            raise UnauthenticatedError(message)
        for tokens in self._tokens:
            found = tokens.identity(token.strip())
            # No token can name the user of a namespace's objects.
            if found is not None and not found.user.startswith(user_of("")):
                return found
        message = "the bearer token is not believed"
        raise UnauthenticatedError(message)

    def check(self, identity: Identity, verb: Verb, *, namespace: str, what: str) -> None:
        """Let pass.

        Raises:
            ForbiddenError: they may not.
        """
        if not self._tokens or not self._rules or any(rule.allows(identity, verb, namespace) for rule in self._rules):
            return
        place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        message = f'{what} is forbidden: User "{identity.user}" cannot {verb} {place}'
        raise ForbiddenError(message)

    def may_pass(self, source: str, target: str) -> bool:
        """Whether objects of one namespace may send events to Brokers and Channels of another: by rules for the user `inward.user_of`."""
        sender = Identity(user_of(source))
        return not self._tokens or not self._rules or any(rule.allows(sender, Verb.SEND, target) for rule in self._rules)

    async def may_send(self, authorization: str | None, route: Route) -> None:
        """See `ports.Authorizer`."""
        if self._tokens:
            what = f"{route.kind.lower()} {route.namespace}/{route.name}"
            self.check(self.identify(authorization), Verb.SEND, namespace=route.namespace, what=what)
