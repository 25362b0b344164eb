"""Pages of a list. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from web_console.showing.numbers import bounded

_T = TypeVar("_T")
PAGE_SIZE: Final = 50
_PAGES_MAX: Final = 10**8


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """A page of a list. `number` is from 1; `total`: the items of all pages."""

    items: Sequence[_T]
    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        """The number of the first item of the page, from 1; 0 if the list is empty."""
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        """The number of the last item of the page."""
        return min(self.number * PAGE_SIZE, self.total)


def page_of(items: Sequence[_T], number: int) -> Page[_T]:
    """Return a page of the items: the nearest one if the list has no page with this number."""
    pages = max(1, -(-len(items) // PAGE_SIZE))
    number = min(max(number, 1), pages)
    return Page(items[(number - 1) * PAGE_SIZE : number * PAGE_SIZE], number, pages, len(items))


def page_from(items: Sequence[_T], number: int, total: int) -> Page[_T]:
    """Return a page whose items were read alone. `total`: the items of all pages."""
    return Page(items, number, max(1, -(-total // PAGE_SIZE)), total)


def number_of(given: str | None) -> int:
    """Return the number of a page from a query; 1 if it is not a number."""
    return bounded(given, 1, _PAGES_MAX)
