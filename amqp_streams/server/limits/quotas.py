"""The quotas of users, over all their connections: `[quotas.NAME]`.

Laws: a connected user always has the same account object, so that a reload changes the account and not the
links. An account is removed only when it has no debt, so that reconnecting does not clear a debt.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import ANONYMOUS, ANYONE, Quota
from amqp_streams.server.limits.bucket import Throttle, Throttled
from amqp_streams.server.observing.status import QuotaStatus

ACCOUNTS_MAX: Final = 10_000
"""Accounts of users without a connection are kept as long as there are at most this many accounts."""
SHOWN_MAX: Final = 1000
"""How many accounts have figures of their own. The others are shown as one sum."""
OTHERS: Final = "(others)"

_NONE: Final = Quota()

Later = Callable[[int, Callable[[], None]], None]


class Account:
    """What one user uses and may use.

    `bytes_in` and `bytes_out` are None if the quota does not limit them.
    """

    __slots__ = (
        "_clock_ms",
        "_ended",
        "_later",
        "_quota",
        "bytes_in",
        "bytes_out",
        "connections",
        "links",
        "name",
        "refused",
    )

    def __init__(self, user: str | None, quota: Quota, clock_ms: Callable[[], int], later: Later) -> None:
        self.name: Final = ANONYMOUS if user is None else user
        self.connections = 0
        self.links = 0
        self.bytes_in: Throttle | None = None
        self.bytes_out: Throttle | None = None
        self.refused: Final = {"connections": 0, "links": 0}
        self._ended = QuotaStatus(self.name)
        self._quota = _NONE
        self._clock_ms: Final = clock_ms
        self._later: Final = later
        self.change(quota)

    def enter(self) -> None:
        """Count a new connection.

        Raises:
            PeerError: the quota does not allow it.
        """
        self._require("connections", self.connections, self._quota.connections)
        self.connections += 1

    def leave(self) -> None:
        """Stop counting a connection that entered."""
        self.connections -= 1

    def require_link(self) -> None:
        """Check that one more link is allowed. The caller then counts it in `links`.

        Raises:
            PeerError: the quota does not allow it.
        """
        self._require("links", self.links, self._quota.links)

    def forget(self, link: Throttled) -> None:
        """Remove a link that has ended."""
        for throttle in (self.bytes_in, self.bytes_out):
            if throttle is not None:
                throttle.leave(link)

    def waiting(self) -> Iterable[tuple[str, int]]:
        """Yield each quota for which links wait now, with their number."""
        for quota, throttle in (("bytes_in", self.bytes_in), ("bytes_out", self.bytes_out)):
            if throttle is not None and throttle.waiting:
                yield quota, throttle.waiting

    def change(self, quota: Quota) -> None:
        """Use another quota from now on. Connections and links beyond it stay."""
        self._quota = quota
        before = self.bytes_in, self.bytes_out
        self.bytes_in = self._throttle(self.bytes_in, quota.bytes_in)
        self.bytes_out = self._throttle(self.bytes_out, quota.bytes_out)
        # Links that wait in a limit that was removed would wait without end.
        for was, now in zip(before, (self.bytes_in, self.bytes_out), strict=True):
            if was is not None and now is None:
                was.end()

    @property
    def idle(self) -> bool:
        """Whether the account can be removed: no connection uses it, and it has no debt."""
        return not self.connections and all(
            throttle is None or throttle.idle for throttle in (self.bytes_in, self.bytes_out)
        )

    def status(self) -> QuotaStatus:
        """Return the figures of this account."""
        refused = QuotaStatus(
            self.name, connections_refused=self.refused["connections"], links_refused=self.refused["links"]
        )
        return self._ended + _figures(self.bytes_in, self.bytes_out) + refused

    def _require(self, quota: str, used: int, allowed: int | None) -> None:
        if allowed is not None and used >= allowed:
            self.refused[quota] += 1
            description = (
                f"quota {quota!r} of {self.name[:128]!r} is used up: it allows at most {allowed} at once"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)

    def _throttle(self, throttle: Throttle | None, rate: int | None) -> Throttle | None:
        if rate is None:
            if throttle is not None:
                # The figures of a removed limit must not disappear from the metrics: counters never decrease.
                ended = (throttle, None) if throttle is self.bytes_in else (None, throttle)
                self._ended += _figures(*ended)
            return None
        if throttle is None:
            return Throttle(rate, self._clock_ms, self._later)
        throttle.change(rate)
        return throttle


class Quotas:
    """The accounts of all users that are connected, or were connected recently."""

    def __init__(self, quotas: Mapping[str, Quota], clock_ms: Callable[[], int], later: Later) -> None:
        self._quotas = quotas
        self._clock_ms: Final = clock_ms
        self._later: Final = later
        self._accounts: Final[dict[str | None, Account]] = {}
        self._gone = QuotaStatus(OTHERS)

    def of(self, user: str | None) -> Account:
        """Return the account of a user. None: the account of all anonymous connections."""
        account = self._accounts.get(user)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                self._clean()
            account = self._accounts[user] = Account(user, self._quota(user), self._clock_ms, self._later)
        return account

    def change(self, quotas: Mapping[str, Quota]) -> None:
        """Use other quotas from now on, also for connected users."""
        self._quotas = quotas
        for user, account in self._accounts.items():
            account.change(self._quota(user))

    def accounts(self) -> tuple[Account, ...]:
        """The accounts now: at most about ACCOUNTS_MAX."""
        return tuple(self._accounts.values())

    def status(self) -> Iterable[QuotaStatus]:
        """Yield the figures of the users that waited or were refused.

        The first SHOWN_MAX, then the sum of the others.
        """
        others, shown = self._gone, 0
        for account in self._accounts.values():
            status = account.status()
            if status == QuotaStatus(account.name):
                continue
            if shown < SHOWN_MAX:
                shown += 1
                yield status
            else:
                others += status
        if others != QuotaStatus(OTHERS):
            yield others

    def _quota(self, user: str | None) -> Quota:
        if user is None:
            return self._quotas.get(ANONYMOUS, _NONE)
        # A user with one of these names must not get the quota that the name stands for.
        own = None if user in (ANONYMOUS, ANYONE) else self._quotas.get(user)
        return own or self._quotas.get(ANYONE, _NONE)

    def _clean(self) -> None:
        for user, account in list(self._accounts.items()):
            if account.idle:
                del self._accounts[user]
                self._gone += account.status()


def _figures(bytes_in: Throttle | None, bytes_out: Throttle | None) -> QuotaStatus:
    waits_in, waited_in_ms = (0, 0) if bytes_in is None else (bytes_in.waits, bytes_in.waited_ms)
    waits_out, waited_out_ms = (0, 0) if bytes_out is None else (bytes_out.waits, bytes_out.waited_ms)
    return QuotaStatus("", waits_in, waited_in_ms, waits_out, waited_out_ms)
