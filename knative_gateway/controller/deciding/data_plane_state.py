"""The latest reports about logs, routes and subscribers, by name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from knative_gateway.controller.deciding.sources import UNKNOWN_LOG, Upkeep, names_of
from knative_gateway.controller.deciding.subscribers import Served
from knative_gateway.ports import Key, Route, Subscriber
from knative_gateway.resources.objects import Object, uid_of


@dataclass(frozen=True, slots=True)
class _Log:
    owner: str
    problem: str | None
    of_predecessor: bool


class DataPlaneState:
    """Logs, the routes that are served, and the subscribers that are not served."""

    def __init__(self) -> None:
        self._logs: Final[dict[str, _Log]] = {}
        self._routes: Final[dict[str, Route]] = {}
        self._failing: Final[dict[str, Mapping[str, str]]] = {}
        self._served: Final[dict[str, Served]] = {}

    def log_known(self, log: str, owner: str, problem: str | None, *, of_predecessor: bool) -> bool:
        """Record whether a log exists. `owner`: the uid of its Broker or Channel; `problem`: None, or why it
        does not exist; `of_predecessor`: it is still the log of a predecessor. Returns whether the report is
        new.
        """
        known = _Log(owner, problem, of_predecessor)
        is_new = self._logs.get(log) != known
        self._logs[log] = known
        return is_new

    def log_gone(self, log: str) -> bool:
        """Forget a log. Returns whether it was known."""
        return self._logs.pop(log, None) is not None

    def served(self, path: str, route: Route | None, failing: Mapping[str, str]) -> list[str]:
        """Record the route that is served at a path. Returns the uids of subscribers whose state changed."""
        before = self._routes.pop(path, None)
        old_failing = self._failing.pop(path, {})
        uids = {each.uid for each in (before.subscribers if before else ())} | old_failing.keys()
        if route is not None:
            self._routes[path] = route
        if failing:
            self._failing[path] = dict(failing)
        now = {each.uid: Served(each, failing.get(each.uid)) for each in (route.subscribers if route else ())}
        now |= {uid: Served(None, words) for uid, words in failing.items() if uid not in now}
        changed = [uid for uid in uids - now.keys() if self._served.pop(uid, None) is not None]
        for uid, known in now.items():
            if self._served.get(uid) != known:
                self._served[uid] = known
                changed.append(uid)
        return changed

    def subscriber(self, uid: str) -> Subscriber | None:
        """Return the subscriber as it is served; None if it is not served."""
        return self.of_subscriber(uid).subscriber

    def of_subscriber(self, uid: str) -> Served:
        """Return the latest report about a subscriber."""
        return self._served.get(uid, _NOTHING)

    def upkeep(self, key: Key, object_: Object) -> Upkeep:
        """Return the reports about a Broker or Channel. Reports about a predecessor with the same name are
        ignored.
        """
        path, log = names_of(key)
        known, route, uid = self._logs.get(log), self._routes.get(path), uid_of(object_)
        is_routed = route is not None and route.uid == uid
        if known is None or known.owner != uid:
            return Upkeep(UNKNOWN_LOG, is_routed)
        return Upkeep(known.problem, is_routed, known.of_predecessor)


_NOTHING: Final = Served()
