"""Access rules: which user may do what on which log. The rules of `[[access]]`, compiled once.

Laws: without rules, everything is allowed; with rules, everything that no rule allows is refused. A decision
uses the name only, before the log is looked up: a refusal does not reveal whether the log exists.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import ANONYMOUS, ANYONE, GROUP_PREFIX, AccessRule, Right

DECISIONS_MAX: Final = 10_000
"""The most cached decisions of an identity, and identities of a node. At the limit, the cache is emptied."""
ANY_LOG: Final = "*"
"""The pattern that matches every log."""
_SHOWN_MAX: Final = 128

_Match = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a connection; None: anonymous. `groups`: the groups that its credentials name (OAuth)."""

    user: str | None = None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Rule:
    who: frozenset[str]
    rights: frozenset[Right]
    log: _Match
    group: _Match | None
    """None: any consumer group, or no group."""
    everywhere: bool = False
    """The rule is about all logs."""

    def allows(self, right: Right, log: str, group: str | None) -> bool:
        """Whether the user has this right on logs with this name.

        The log need not exist. `group`: the consumer group to read in.
        """
        if right not in self.rights or not self.log(log):
            return False
        return (
            right is not Right.RECEIVE
            or self.group is None
            or (group is not None and bool(self.group(group)))
        )


class Permissions:
    """What one identity may do. Caches its decisions."""

    __slots__ = ("_decisions", "_rules", "identity")

    def __init__(self, identity: Identity, rules: Sequence[_Rule] | None) -> None:
        self.identity: Final = identity
        self._rules: Final = rules
        self._decisions: dict[tuple[Right, str, str | None], bool] = {}

    def allows(self, right: Right, log: str, group: str | None = None) -> bool:
        """Whether it has this right on a log of this name; the log need not exist.

        `group`: the consumer group to read in.
        """
        if self._rules is None:
            return True
        asked = (right, log, group)
        decided = self._decisions.get(asked)
        if decided is None:
            if len(self._decisions) >= DECISIONS_MAX:
                # Emptied instead of evicting single entries: rules decide again quickly.
                self._decisions.clear()
            decided = self._decisions[asked] = any(rule.allows(right, log, group) for rule in self._rules)
        return decided

    def sees(self, log: str) -> bool:
        """Whether it may know that the log exists, and see its settings and figures."""
        return self.allows(Right.INFO, log) or self.allows(Right.MANAGE, log)

    @property
    def administers(self) -> bool:
        """Whether it has the right `manage` on all logs: one rule gives it for the pattern `*`."""
        rules = self._rules
        return rules is None or any(each.everywhere and Right.MANAGE in each.rights for each in rules)

    def require(self, right: Right, log: str, group: str | None = None) -> None:
        """Raise unless it has this right.

        Raises:
            PeerError: amqp:unauthorized-access, naming the right and the log.
        """
        if not self.allows(right, log, group):
            raise self.refusal(right, log, group)

    def refusal(self, right: Right, log: str, group: str | None = None) -> PeerError:
        """The error for a missing right."""
        user = self.identity.user
        who = "an anonymous connection" if user is None else f"user {user[:_SHOWN_MAX]!r}"
        where = "" if group is None else f" in consumer group {group[:_SHOWN_MAX]!r}"
        return PeerError(
            names.UNAUTHORIZED_ACCESS, f"{who} has no right {right.value!r} on {log[:_SHOWN_MAX]!r}{where}"
        )

    # -- what is kept for readers: cursors and consumer groups

    def sees_cursor(self, log: str, group: str | None, owner: str | None) -> bool:
        """Whether it may see a cursor: its own while it may read there, those of others with `manage`."""
        own = owner == self.identity.user and self.allows(Right.RECEIVE, log, group)
        return own or self.allows(Right.MANAGE, log)

    def changes_cursor(self, log: str, group: str | None, owner: str | None) -> bool:
        """Whether it may reset or remove a cursor: its own while it may read there.

        Others' and groups' with `manage`.
        """
        own = group is None and owner == self.identity.user and self.allows(Right.RECEIVE, log)
        return own or self.allows(Right.MANAGE, log)

    def sees_group(self, log: str, group: str) -> bool:
        """Whether the user may see a consumer group: with `manage`, or with `receive` in this group."""
        return self.allows(Right.RECEIVE, log, group) or self.allows(Right.MANAGE, log)


class Access:
    """The rules of a node.

    `user_groups`: members of the groups in rules, in addition to those of the credentials.
    """

    def __init__(
        self, rules: Sequence[AccessRule] = (), user_groups: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self.open: Final = not rules
        """No rules are configured: every user may do everything."""
        self._rules: Final = [_compiled(rule) for rule in rules]
        self._groups_of: Final[dict[str, set[str]]] = {}
        for group, members in (user_groups or {}).items():
            for member in members:
                self._groups_of.setdefault(member, set()).add(group)
        self._known: Final[dict[Identity, Permissions]] = {}

    def of(self, identity: Identity) -> Permissions:
        """The permissions of this identity. Keeps only the rules that concern it."""
        known = self._known.get(identity)
        if known is None:
            if len(self._known) >= DECISIONS_MAX:
                self._known.clear()
            whom = self._called(identity)
            rules = None if self.open else [rule for rule in self._rules if not rule.who.isdisjoint(whom)]
            known = self._known[identity] = Permissions(identity, rules)
        return known

    def allows(self, identity: Identity, right: Right, log: str, group: str | None = None) -> bool:
        """See `Permissions.allows`."""
        return self.of(identity).allows(right, log, group)

    def _called(self, identity: Identity) -> set[str]:
        """The names that this identity has in rules.

        A user whose name is `*`, `anonymous` or a group's name gets no rights from that name.
        """
        user = identity.user
        if user is None:
            return {ANONYMOUS}
        groups = identity.groups | self._groups_of.get(user, set())
        # Such a name would mean every user, or a group, in the rules.
        own = set() if user in (ANYONE, ANONYMOUS) or user.startswith(GROUP_PREFIX) else {user}
        return {ANYONE, *own, *(GROUP_PREFIX + group for group in groups)}


EVERYTHING: Final = Access().of(Identity())
"""The permissions of every user if no rules are configured."""


def _compiled(rule: AccessRule) -> _Rule:
    group = None if rule.consumer_groups is None else _any_of(rule.consumer_groups)
    logs = _any_of(rule.logs)
    return _Rule(frozenset(rule.users), frozenset(rule.allow), logs, group, ANY_LOG in rule.logs)


def _any_of(patterns: Sequence[str]) -> _Match:
    """Whether a name matches one of the patterns, by the rules of `fnmatchcase`."""
    # One expression for all patterns: a match costs the same for one pattern and for many.
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns)).match
