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
from knative_gateway.filters.dialects import Filters, Test, compile_filters
from knative_gateway.filters.work import Work

STEPS_MAX: Final = 4 << 20
"""Steps of the filters of all subscribers together for one event."""

KeyT = TypeVar("KeyT")
_Entry = tuple[Test | None, tuple[int, ...]]
"""Compiled filters, and the index numbers of the subscribers that have them. None: the table lookup decides
already.
"""


class Index(Generic[KeyT]):
    """The compiled filters of one Broker's subscribers. Immutable: a change of the Triggers builds a new
    index.
    """

    __slots__ = ("_always", "_keys", "_rest", "_tables", "_work")

    def __init__(self, subscribers: Sequence[tuple[KeyT, Filters]]) -> None:
        """Compile the filters of each subscriber.

        Raises:
          FilterError: filters are not valid; `validate` returns all problems.
        """
        self._keys: Final = tuple(key for key, _ in subscribers)
        self._work: Final = Work(STEPS_MAX)
        always: list[int] = []
        rest: list[_Entry] = []
        tables: dict[str, dict[str, list[_Entry]]] = {}
        # Thousands of Triggers often have a handful of different filters.
        alike = _alike([filters for _, filters in subscribers])
        found = [anchors(filters) for filters, _ in alike]
        spread = _spread(found)
        for (filters, places), candidates in zip(alike, found, strict=True):
            test = compile_filters(filters, self._work).test
            if test is None:
                always.extend(places)
            elif not candidates:
                rest.append((test, places))
            else:
                # The anchor with the fewest values makes the smallest table. Of equal ones, the attribute
                # with the most values among all subscribers excludes the most filters.
                anchor = min(candidates, key=lambda each: (len(each.values), -spread[each.name]))
                entry = (None if anchor.whole else test, places)
                table = tables.setdefault(anchor.name, {})
                for value in anchor.values:
                    table.setdefault(value, []).append(entry)
        self._always: Final = tuple(always)
        self._rest: Final = tuple(rest)
        self._tables: Final = tuple(
            (name, {value: tuple(entries) for value, entries in table.items()})
            for name, table in sorted(tables.items())
        )

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
        found = list(self._always)
        for name, table in self._tables:
            value = attributes.get(name)
            if value is not None:
                # Only the filters that require exactly this value are evaluated: with one Trigger for each
                # type, that is one of thousands.
                for test, places in table.get(value if value.__class__ is str else canonical(value), ()):
                    if test is None or test(attributes):
                        found.extend(places)
        for test, places in self._rest:
            assert test is not None
            if test(attributes):
                found.extend(places)
        # The tables are not in the order of the subscribers. Deliveries must not depend on the filters of
        # others.
        if len(found) > 1:
            found.sort()
        return [self._keys[place] for place in found]


def _alike(filters: Sequence[Filters]) -> list[tuple[Filters, tuple[int, ...]]]:
    """Group the subscribers by equal filters."""
    places: dict[str, list[int]] = {}
    for place, each in enumerate(filters):
        places.setdefault(json.dumps(each, default=_plain), []).append(place)
    return [(filters[same[0]], tuple(same)) for same in places.values()]


def _plain(value: object) -> object:
    return (
        dict(value)
        if isinstance(value, Mapping)
        else list(value)
        if isinstance(value, Sequence)
        else repr(value)
    )


def _spread(found: Sequence[Sequence[Anchor]]) -> Counter[str]:
    """Count the values that filters require of each attribute. A lookup by an attribute with more values
    excludes more filters.
    """
    values = {
        (anchor.name, value) for candidates in found for anchor in candidates for value in anchor.values
    }
    return Counter(name for name, _ in values)
