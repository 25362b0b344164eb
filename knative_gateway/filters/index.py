"""All Triggers of a Broker at once: which of them does an event go to? Spec: Knative Eventing, Content Based
Routing.

Laws: each subscriber is evaluated exactly once for an event, however many there are, and the answer is the
same as that of its own filters. Subscribers that ask for one of few values of an attribute are found in a
dictionary by the event's value; equal filters are evaluated once.
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
"""For all subscribers and one event at once."""

KeyT = TypeVar("KeyT")
_Entry = tuple[Test | None, tuple[int, ...]]
"""Subscribers, by their place in the index, with the same filters; None: nothing is left to evaluate."""


class Index(Generic[KeyT]):
    """The subscribers of one Broker, compiled. Immutable: another set of Triggers is another index."""

    __slots__ = ("_always", "_keys", "_rest", "_tables", "_work")

    def __init__(self, subscribers: Sequence[tuple[KeyT, Filters]]) -> None:
        """Compile the filters of each subscriber.

        Raises:
            FilterError: filters that `validate` has problems with.
        """
        self._keys: Final = tuple(key for key, _ in subscribers)
        self._work: Final = Work(STEPS_MAX)
        always: list[int] = []
        rest: list[_Entry] = []
        tables: dict[str, dict[str, list[_Entry]]] = {}
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
        """Steps that the last `matching` took."""
        return self._work.spent

    def matching(self, attributes: Attributes) -> list[KeyT]:
        """The keys of the subscribers that an event with these context attributes goes to, in the order of
        the subscribers.

        Raises:
            FilterWorkError: all together take more steps than may be taken at once.
        """
        self._work.begin()
        found = list(self._always)
        for name, table in self._tables:
            value = attributes.get(name)
            if value is not None:
                for test, places in table.get(value if value.__class__ is str else canonical(value), ()):
                    if test is None or test(attributes):
                        found.extend(places)
        for test, places in self._rest:
            assert test is not None
            if test(attributes):
                found.extend(places)
        if len(found) > 1:
            found.sort()
        return [self._keys[place] for place in found]


def _alike(filters: Sequence[Filters]) -> list[tuple[Filters, tuple[int, ...]]]:
    """Subscribers by their filters."""
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
    """How many values of each attribute are asked for: the more, the more a look-up by it rules out."""
    values = {
        (anchor.name, value) for candidates in found for anchor in candidates for value in anchor.values
    }
    return Counter(name for name, _ in values)
