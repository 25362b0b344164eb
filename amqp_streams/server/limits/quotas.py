"""What users may have at once, over all their connections: `[quotas.NAME]`.

Laws: a user's account is the same object as long as it is connected, so that a reload changes what its links
look at, not the links. An account that is gone owed nothing: who comes back does not begin with a clean
slate.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import ANONYMOUS, ANYONE, Quota
from amqp_streams.server.limits.bucket import Throttle, Throttled
from amqp_streams.server.observing.status import QuotaStatus

ACCOUNTS_MAX: Final = 10_000
"""Accounts of users without a connection are kept while all accounts together are at most this number."""
SHOWN_MAX: Final = 1000
"""Accounts with figures of their own."""
OTHERS: Final = "(others)"

_NONE: Final = Quota()

Later = Callable[[int, Callable[[], None]], None]


class Account:
    """One user's share of the node: what it uses, and what it may use. `bytes_in` and `bytes_out` are None
    without a bound.
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
        """One connection more.

        Raises:
            PeerError: the quota does not allow it.
        """
        self._require("connections", self.connections, self._quota.connections)
        self.connections += 1

    def leave(self) -> None:
        """A connection that entered is gone."""
        self.connections -= 1

    def require_link(self) -> None:
        """Raises PeerError: the quota does not allow one more. The caller then counts `links`."""
        self._require("links", self.links, self._quota.links)

    def forget(self, link: Throttled) -> None:
        """A link is gone."""
        for throttle in (self.bytes_in, self.bytes_out):
            if throttle is not None:
                throttle.leave(link)

    def change(self, quota: Quota) -> None:
        """Use another quota from now on. What the user has stays, even above the quota."""
        self._quota = quota
        before = self.bytes_in, self.bytes_out
        self.bytes_in = self._throttle(self.bytes_in, quota.bytes_in)
        self.bytes_out = self._throttle(self.bytes_out, quota.bytes_out)
        for was, now in zip(before, (self.bytes_in, self.bytes_out), strict=True):
            if was is not None and now is None:
                was.end()

    @property
    def idle(self) -> bool:
        """It could as well be a new one."""
        return not self.connections and all(
            throttle is None or throttle.idle for throttle in (self.bytes_in, self.bytes_out)
        )

    def status(self) -> QuotaStatus:
        """Its figures."""
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
        """The account of a user. None: all anonymous connections together."""
        account = self._accounts.get(user)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                self._clean()
            account = self._accounts[user] = Account(user, self._quota(user), self._clock_ms, self._later)
        return account

    def change(self, quotas: Mapping[str, Quota]) -> None:
        """Use other quotas from now on, for existing connections as well."""
        self._quotas = quotas
        for user, account in self._accounts.items():
            account.change(self._quota(user))

    def status(self) -> Iterable[QuotaStatus]:
        """The figures of users that had to wait or were refused: of SHOWN_MAX by name, of the others
        together.
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
