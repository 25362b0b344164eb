"""Computes the status of each object, the routes and the logs from all objects and from the data plane's
reports. Pure.

- The work is proportional to the change: the object, the objects that looked it up, and its Triggers or
  Subscriptions. The results are the same as after a full computation.
- If a plan is carried out and nothing else changes, the next plan has no writes.
- `observedGeneration` and `conditions` are written together.
- An exception affects only the object that raised it.

Spec: knative-eventing-test-spec, "Control Plane Assertions".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from knative_gateway.addressing import Addressing, Lookup
from knative_gateway.controller.deciding import statuses
from knative_gateway.controller.deciding.data_plane_state import DataPlaneState
from knative_gateway.controller.deciding.dependencies import Dependencies, Node
from knative_gateway.controller.deciding.plan import NO_ROUTES, Figures, LogNeed, Problem, Settings, Write
from knative_gateway.controller.deciding.relations import DEFINITION, MEMBERS, SOURCES, parent_of
from knative_gateway.controller.deciding.sources import Source, keys_of, names_of, path_of, readiness, source
from knative_gateway.controller.deciding.subscribers import Member, Parent, member, subscriber_entry
from knative_gateway.ports import Key, Route, Routes
from knative_gateway.resources.conditions import READY, status_of
from knative_gateway.resources.objects import Object, same, timestamp, uid_of

T = TypeVar("T")
_SOURCE: Final = "source"
_PARENT: Final = "parent"
_MEMBER: Final = "member"
_ROUTE: Final = "route"
_STAGES: Final = (_SOURCE, _PARENT, _MEMBER, _ROUTE)


class Reconciler:
    """Holds the results for all objects. `changed` and the reports of the data plane mark results that `step`
    computes again.

    `needs`: the logs that must exist, by name. `new_needs`: names whose need changed; the caller empties it.
    """

    def __init__(self, objects: Mapping[Key, Object], settings: Settings) -> None:
        """`objects`: all objects. The caller reports each change of it with `changed`."""
        self.needs: Final[dict[str, LogNeed]] = {}
        self.new_needs: Final[dict[str, None]] = {}
        self.problems: Final[list[Problem]] = []
        """Exceptions; the caller empties the list."""
        self._needed_by: Final[dict[str, Key]] = {}
        self._objects: Final = objects
        self._settings: Final = settings
        self._data_plane: Final = DataPlaneState()
        self._figures: Final[dict[str, Figures]] = {}
        self._sources: Final[dict[Key, Source]] = {}
        self._parents: Final[dict[Key, Parent]] = {}
        self._members: Final[dict[Key, Member]] = {}
        self._uids: Final[dict[str, Key]] = {}
        """The keys of Triggers and Subscriptions, by uid."""
        self._parent_of: Final[dict[Key, Key]] = {}
        self._children: Final[dict[Key, dict[Key, None]]] = {}
        self._broken: Final[set[Node]] = set()
        self._dependencies: Final = Dependencies()
        self._by_path: Final[dict[str, Route]] = {}
        self._holder: Final[dict[str, Key]] = {}
        """The object whose route is at a path."""
        self._routes = NO_ROUTES
        self._routes_changed = False
        self._dirty_sources: Final[dict[Key, None]] = {}
        self._dirty_parents: Final[dict[Key, None]] = {}
        self._dirty_members: Final[dict[Key, None]] = {}
        self._dirty_routes: Final[dict[Key, None]] = {}
        self._dirty_objects: Final[dict[Key, None]] = {}
        self._steps: Final = (
            (self._dirty_sources, self._make_source),
            (self._dirty_parents, self._make_parent),
            (self._dirty_members, self._make_member),
            (self._dirty_routes, self._make_route),
        )
        self._dirty_by_stage: Final = {
            _SOURCE: self._dirty_sources,
            _PARENT: self._dirty_parents,
            _MEMBER: self._dirty_members,
        }

    # -- what changed

    def changed(self, key: Key) -> None:
        """Call this after an object was created, changed or deleted."""
        group_kind = key.group, key.kind
        if group_kind in SOURCES:
            self._dirty_sources[key] = None
            # Other objects depend on its published form. `_make_source` marks them if that changes.
            self._dirty_dependents(key, only=_SOURCE)
            return
        if group_kind in MEMBERS:
            self._dirty_members[key] = None
        elif group_kind == DEFINITION:
            self._dirty_objects[key] = None
        self._dirty_dependents(key)

    def log_known(self, log: str, owner: str, problem: str | None, *, of_predecessor: bool = False) -> None:
        """Report a log. `owner`: the uid of its Broker or Channel; `problem`: None, or why the log does not
        exist; `of_predecessor`: it is still the log of a predecessor.
        """
        if self._data_plane.log_known(log, owner, problem, of_predecessor=of_predecessor):
            self._dirty_log(log)

    def log_gone(self, log: str) -> None:
        """Forget a log."""
        if self._data_plane.log_gone(log):
            self._dirty_log(log)

    def served(self, path: str, route: Route | None, failing: Mapping[str, str]) -> None:
        """Record the route that the dispatcher serves at a path.

        `failing`: the reasons why subscribers of the route get no events, by the uid of the subscriber.
        """
        uids = self._data_plane.served(path, route, failing)
        for key in keys_of(path):
            if key in self._objects:
                self._dirty_sources[key] = None
        for uid in uids:
            self._dirty_uid(uid)

    def counted(self, figures: Mapping[str, Figures]) -> None:
        """Report the counters of subscribers whose counters changed since the last call, by uid."""
        self._figures.clear()
        self._figures.update(figures)
        for uid in figures:
            if uid in self._uids:
                self._dirty_objects[self._uids[uid]] = None

    def write_again(self, key: Key) -> None:
        """Report that the last write of this object failed."""
        self._dirty_objects[key] = None

    def serves(self, uid: str) -> bool:
        """Return whether the data plane may still deliver to a subscriber."""
        return self._data_plane.subscriber(uid) is not None

    # -- the work

    @property
    def is_done(self) -> bool:
        """Whether all results are computed and written."""
        return not self._dirty_objects and not any(dirty for dirty, _ in self._steps)

    def step(self, limit: int) -> bool:
        """Compute at most `limit` results, in the order of their dependencies. Returns whether more may be
        left.
        """
        for _ in range(limit):
            for dirty, make in self._steps:
                if dirty:
                    # The first stage with work goes first: a Trigger is computed after its Broker, so it is
                    # computed once.
                    key = next(iter(dirty))
                    del dirty[key]
                    self._guarded((_ROUTE, key), partial(make, key))
                    break
            else:
                return False
        return True

    def routes(self) -> Routes:
        """Return the routes; the same object as before if nothing changed."""
        if self._routes_changed:
            self._routes_changed = False
            self._routes = replace(
                self._routes,
                version=self._routes.version + 1,
                by_path=dict(self._by_path),
            )
        return self._routes

    def writes(self, limit: int, now_ms: int) -> Sequence[Write]:
        """Return at most `limit` objects to write. `now_ms`: since 1970 UTC, for transition times."""
        now, found = timestamp(now_ms), []
        for key in list(islice(self._dirty_objects, limit)):
            del self._dirty_objects[key]
            before = self._objects.get(key)
            if before is not None:
                made = self._written(key, before, now)
                # No write without a difference: each write is a new version, which is reported and computed
                # again.
                if made is not None and not same(made, before):
                    found.append(Write(key, before, made))
        return found

    # -- one result

    def _make_source(self, key: Key) -> None:
        object_, before = self._identified(key), self._sources.get(key)
        if object_ is None:
            made = None
            self._broken.discard((_SOURCE, key))
            self._dependencies.forget((_SOURCE, key))
        else:
            lookup = self._dependencies.recorded((_SOURCE, key), self._identified)
            kept = self._data_plane.upkeep(key, object_)
            made = self._guarded((_SOURCE, key), partial(source, key, object_, self._settings, kept, lookup))
            # An internal error must not stop deliveries: the last result stays in use until the next success.
            if made is None and before is not None and before.uid == uid_of(object_):
                made = before
        if made is None:
            self._sources.pop(key, None)
        else:
            self._sources[key] = made
        self._need_log(key, made)
        # Compared by what others read: a change of anything else in a Broker does not make all objects that
        # refer to it be computed again.
        if _seen_by_others(before) != _seen_by_others(made):
            self._dirty_dependents(key)
        # In any case: the stages behind compare their own results and stop if nothing changed.
        self._dirty_parents[key] = self._dirty_routes[key] = None

    def _need_log(self, key: Key, source_: Source | None) -> None:
        _, log = names_of(key)
        before = self.needs.get(log)
        if source_ is not None and source_.served:
            need = replace(source_.log.need, owner=source_.uid)
            self.needs[log] = need
            self._needed_by[log] = key
            if need != before:
                self.new_needs[log] = None
        # Only the object that needed the log gives it up: a successor with the same name may need it already.
        elif self._needed_by.get(log) == key:
            del self.needs[log], self._needed_by[log]
            self.new_needs[log] = None

    def _make_parent(self, key: Key) -> None:
        source_, before = self._sources.get(key), self._parents.get(key)
        if source_ is None:
            self._broken.discard((_PARENT, key))
            self._dependencies.forget((_PARENT, key))
            made = None
        else:
            addressing = self._addressing(self._dependencies.recorded((_PARENT, key), self._published))

            def make() -> Parent:
                delivery = source_.delivery(addressing)
                return Parent(source_, readiness(source_, delivery), delivery)

            made = self._guarded((_PARENT, key), make) or before
        if made is None:
            self._parents.pop(key, None)
        else:
            self._parents[key] = made
        if _seen_by_members(before) != _seen_by_members(made):
            self._dirty_members.update(self._children.get(key, {}))
        self._dirty_objects[key] = None

    def _make_member(self, key: Key) -> None:
        object_, before = self._identified(key), self._members.get(key)
        if object_ is None:
            self._forget_member(key, before)
            return
        parent_key, uid = parent_of(key, object_), uid_of(object_)
        if self._parent_of.get(key, parent_key) != parent_key or (
            before is not None and uid_of(before.resource) != uid
        ):
            self._forget_member(key, before)
            before = None
        self._parent_of[key] = parent_key
        self._children.setdefault(parent_key, {})[key] = None
        self._uids[uid] = key
        addressing = self._addressing(self._dependencies.recorded((_MEMBER, key), self._published))
        parent, served = self._parents.get(parent_key), self._data_plane.of_subscriber(uid)
        made = self._guarded((_MEMBER, key), partial(member, key, object_, parent, addressing, served))
        if made is not None:
            if before is not None and made.subscriber == before.subscriber:
                # The same object, because comparing routes is then cheap.
                made = replace(made, subscriber=before.subscriber)
            self._members[key] = made
        self._dirty_objects[key] = None
        self._member_changed(parent_key, before, self._members.get(key))

    def _forget_member(self, key: Key, before: Member | None) -> None:
        parent_key = self._parent_of.pop(key, None)
        self._members.pop(key, None)
        self._broken.discard((_MEMBER, key))
        self._dependencies.forget((_MEMBER, key))
        if before is not None:
            uid = uid_of(before.resource)
            self._uids.pop(uid, None)
            self._figures.pop(uid, None)
        if parent_key is not None:
            children = self._children[parent_key]
            children.pop(key, None)
            if not children:
                del self._children[parent_key]
            self._member_changed(parent_key, before, None)

    def _member_changed(self, parent_key: Key, before: Member | None, after: Member | None) -> None:
        old, new = (None if each is None else each.subscriber for each in (before, after))
        if old is not new:
            self._dirty_routes[parent_key] = None
        if (parent_key.group, parent_key.kind) in SOURCES and subscriber_entry(before) != subscriber_entry(
            after,
        ):
            self._dirty_objects[parent_key] = None

    def _make_route(self, key: Key) -> None:
        path, _ = names_of(key)
        source_ = self._sources.get(key)
        if source_ is None or not source_.routed:
            if self._holder.get(path) == key:
                del self._holder[path], self._by_path[path]
                self._routes_changed = True
            return
        members = [
            self._members[each]
            for each in sorted(self._children.get(key, ()), key=_order)
            if each in self._members
        ]
        route = Route(
            uid=source_.uid,
            kind=key.kind,
            namespace=key.namespace,
            name=key.name,
            path=path,
            log=source_.log.need.log,
            subscribers=tuple(each.subscriber for each in members if each.subscriber is not None),
            duplicates_ms=source_.duplicates_ms,
        )
        self._holder[path] = key
        if self._by_path.get(path) != route:
            self._by_path[path] = route
            self._routes_changed = True

    def _written(self, key: Key, before: Object, now: str) -> Object | None:
        """Return the object with its computed status; None if it has no result."""
        try:
            if any((stage, key) in self._broken for stage in _STAGES):
                return statuses.of_broken(before, now)
            if (key.group, key.kind) == DEFINITION:
                return statuses.of_definition(before, now)
            if (each := self._members.get(key)) is not None:
                return statuses.of_member(each, self._figures.get(uid_of(before)), now)
            if (parent := self._parents.get(key)) is not None:
                members = [
                    self._members[each]
                    for each in sorted(self._children.get(key, ()), key=_order)
                    if each in self._members
                ]
                return statuses.of_source(parent, members, now)
        except Exception as error:  # noqa: BLE001  # it affects only this object
            self.problems.append(Problem(key, error))
        return None

    def _guarded(self, node: Node, make: Callable[[], T]) -> T | None:
        """Return the result of `make`. None: it raised an exception, which the object's status reports until
        the next success.
        """
        self._broken.discard(node)
        try:
            return make()
        except Exception as error:  # noqa: BLE001  # it affects only this object
            self.problems.append(Problem(node[1], error))
            self._broken.add(node)
            self._dirty_objects[node[1]] = None
            return None

    # -- lookups

    def _addressing(self, lookup: Lookup) -> Addressing:
        return Addressing(
            lookup,
            self._settings.services,
            self._settings.allowed,
            f"{self._settings.base_url}/broker/",
            self._settings.inward,
        )

    def _identified(self, key: Key) -> Object | None:
        """Return an object; None if it does not have a uid.

        Logs, routes and subscribers belong to uids. Objects without a uid would share them.
        """
        found = self._objects.get(key)
        return found if found is not None and uid_of(found) else None

    def _published(self, key: Key) -> Object | None:
        """Return an object as other objects refer to it: Brokers and Channels have their current
        addresses.
        """
        found = self._sources.get(key)
        return self._identified(key) if found is None else found.published

    def _dirty_dependents(self, key: Key, *, only: str = "") -> None:
        for stage, dependent in self._dependencies.of(key):
            if not only or stage == only:
                self._dirty_by_stage[stage][dependent] = None

    def _dirty_log(self, log: str) -> None:
        for key in keys_of(path_of(log)):
            if key in self._objects:
                self._dirty_sources[key] = None

    def _dirty_uid(self, uid: str) -> None:
        key = self._uids.get(uid)
        if key is not None:
            self._dirty_members[key] = None


def _order(key: Key) -> tuple[str, str]:
    return key.kind, key.name


def _seen_by_others(source_: Source | None) -> object:
    return None if source_ is None else (source_.uid, source_.url, status_of(source_.resource, READY))


def _seen_by_members(parent: Parent | None) -> object:
    """Return the values of a Broker or Channel that its Triggers or Subscriptions depend on."""
    return (
        None
        if parent is None
        else (parent.ready, parent.delivery, parent.source.served, parent.source.log.need.log)
    )
