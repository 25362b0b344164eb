"""An index over all Triggers of a Broker: which of them receive an event?

The result is the same as that of evaluating each subscriber's filters alone. Filters that require one of few
values of an attribute are found in a dictionary by the event's value. Equal filters are evaluated once.

Spec: Knative Eventing, Content Based Routing.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from knative_gateway.filters.anchors import Anchor, anchors
from knative_gateway.filters.attributes import Attributes
from knative_gateway.filters.cesql.casts import canonical
from knative_gateway.filters.dialects import Filters, compile_filters
from knative_gateway.filters.work import Work

STEPS_MAX: Final = 4 << 20
"""Steps of the filters of all subscribers together for one event."""

KeyT = TypeVar("KeyT")


class _Group:
    """The subscribers that have equal filters. `test` is None if every event passes.

    `anchor`: where the tables have the group; None: every event is tested.
    """

    __slots__ = ("anchor", "candidates", "places", "test", "text")

    def __init__(self, text: str, filters: Filters, work: Work) -> None:
        self.text: Final = text
        self.test: Final = compile_filters(filters, work).test
        self.candidates: Final = anchors(filters)
        self.anchor: Anchor | None = None
        self.places: Final[dict[int, None]] = {}


class Index(Generic[KeyT]):
    """The compiled filters of one Broker's subscribers.

    A change costs a comparison for each subscriber, and compiles only filters that no other subscriber has: a
    Broker may have thousands of Triggers, and they come one by one.
    """

    __slots__ = (
        "_always",
        "_chosen",
        "_groups",
        "_keys",
        "_known",
        "_next",
        "_rest",
        "_spread",
        "_tables",
        "_values",
        "_work",
    )

    def __init__(self, subscribers: Sequence[tuple[KeyT, Filters]] = ()) -> None:
        """See `become`."""
        self._work: Final = Work(STEPS_MAX)
        self._keys: Final[dict[int, KeyT]] = {}
        self._known: Final[dict[KeyT, tuple[int, Filters, _Group]]] = {}
        self._next = 0
        self._groups: Final[dict[str, _Group]] = {}
        self._always: Final[dict[_Group, None]] = {}
        self._rest: Final[dict[_Group, None]] = {}
        self._tables: Final[dict[str, dict[str, dict[_Group, None]]]] = {}
        self._values: Final[Counter[tuple[str, str]]] = Counter()
        """How many groups have this value among the candidates for their anchor."""
        self._spread: Final[Counter[str]] = Counter()
        """How many different values filters require of an attribute. A lookup by an attribute with more
        values excludes more filters.
        """
        self._chosen = 0
        """How many groups there were when the anchors of all of them were chosen."""
        self.become(subscribers)

    def become(self, subscribers: Sequence[tuple[KeyT, Filters]]) -> None:
        """Make this the index of these subscribers. Each has a key of its own; new ones come last.

        Raises:
          FilterError: filters are not valid; `validate` returns all problems. Nothing has changed then.
        """
        wanted = dict(subscribers)
        changed: list[tuple[KeyT, Filters, _Group]] = []
        groups: dict[str, _Group] = {}
        for key, filters in subscribers:
            known = self._known.get(key)
            if known is not None and (known[1] is filters or known[1] == filters):
                continue
            # Thousands of Triggers often have a handful of different filters.
            text = text_of(filters)
            group = self._groups.get(text) or groups.get(text) or _Group(text, filters, self._work)
            groups[text] = group
            changed.append((key, filters, group))
        for key in [key for key in self._known if key not in wanted]:
            del self._keys[self._leave(key)]
        for key, filters, group in changed:
            place = self._leave(key) if key in self._known else self._next
            self._next = max(self._next, place + 1)
            # New, or its last subscriber has just left.
            if group.text not in self._groups:
                self._register(group)
            group.places[place] = None
            self._known[key] = place, filters, group
            self._keys[place] = key
        if len(self._groups) > 2 * self._chosen:
            self._choose_all()

    @property
    def spent(self) -> int:
        """Steps of the last call of `matching`."""
        return self._work.spent

    def matching(self, attributes: Attributes) -> list[KeyT]:
        """Return the keys of the subscribers that receive an event, in the order of the subscribers.

        Raises:
          FilterWorkError: all filters together take more steps than the limit.
        """
        self._work.begin()
        found: list[int] = []
        for group in self._always:
            found.extend(group.places)
        for name, table in self._tables.items():
            value = attributes.get(name)
            if value is not None:
                # Only the filters that require exactly this value are evaluated: with one Trigger for each
                # type, that is one of thousands.
                for group in table.get(value if value.__class__ is str else canonical(value), ()):
                    assert group.anchor is not None
                    assert group.test is not None
                    if group.anchor.whole or group.test(attributes):
                        found.extend(group.places)
        for group in self._rest:
            assert group.test is not None
            if group.test(attributes):
                found.extend(group.places)
        # The tables are not in the order of the subscribers. Deliveries must not depend on the filters of
        # others.
        if len(found) > 1:
            found.sort()
        return [self._keys[place] for place in found]

    def _register(self, group: _Group) -> None:
        self._groups[group.text] = group
        for value in _values_of(group):
            self._values[value] += 1
            if self._values[value] == 1:
                self._spread[value[0]] += 1
        self._place(group)

    def _leave(self, key: KeyT) -> int:
        """Take a subscriber out of its group; returns its place. A group without subscribers is dropped."""
        place, _, group = self._known.pop(key)
        del group.places[place]
        if not group.places:
            del self._groups[group.text]
            self._displace(group)
            for value in _values_of(group):
                self._values[value] -= 1
                if not self._values[value]:
                    del self._values[value]
                    self._spread[value[0]] -= 1
                    if not self._spread[value[0]]:
                        del self._spread[value[0]]
        return place

    def _place(self, group: _Group) -> None:
        """Choose the anchor of a group, and put the group where `matching` finds it."""
        if group.test is None:
            self._always[group] = None
        elif not group.candidates:
            self._rest[group] = None
        else:
            # The anchor with the fewest values makes the smallest table. Of equal ones, the attribute
            # with the most values among all subscribers excludes the most filters.
            anchor = min(group.candidates, key=lambda each: (len(each.values), -self._spread[each.name]))
            group.anchor = anchor
            table = self._tables.setdefault(anchor.name, {})
            for value in anchor.values:
                table.setdefault(value, {})[group] = None

    def _displace(self, group: _Group) -> None:
        self._always.pop(group, None)
        self._rest.pop(group, None)
        if group.anchor is not None:
            table = self._tables[group.anchor.name]
            for value in group.anchor.values:
                del table[value][group]
                if not table[value]:
                    del table[value]
            if not table:
                del self._tables[group.anchor.name]

    def _choose_all(self) -> None:
        """Choose all anchors again: the first of them were chosen when little was known about the values.

        This happens when the number of groups has doubled, so its share of the cost of a change is constant.
        """
        self._chosen = len(self._groups)
        for group in self._groups.values():
            self._displace(group)
            self._place(group)


def _values_of(group: _Group) -> set[tuple[str, str]]:
    return {(anchor.name, value) for anchor in group.candidates for value in anchor.values}


def text_of(filters: Filters) -> str:
    """Return filters as a text, which is equal for equal filters."""
    return json.dumps(filters, default=_plain)


def _plain(value: object) -> object:
    return (
        dict(value)
        if isinstance(value, Mapping)
        else list(value)
        if isinstance(value, Sequence)
        else repr(value)
    )
