"""Pages of a list."""

from hypothesis import given
from hypothesis import strategies as st

from web_console.showing.paging import PAGE_SIZE, number_of, page_of


@given(st.integers(0, 400), st.integers(-5, 50))
def test_pages_have_every_item_once(count: int, number: int) -> None:
    items = list(range(count))
    pages = page_of(items, number).pages
    assert [item for each in range(1, pages + 1) for item in page_of(items, each).items] == items
    assert 1 <= page_of(items, number).number <= pages


def test_a_page_says_which_items_it_has() -> None:
    second = page_of(range(PAGE_SIZE + 3), 2)
    assert (second.first, second.last, second.total) == (PAGE_SIZE + 1, PAGE_SIZE + 3, PAGE_SIZE + 3)
    assert (page_of([], 1).first, page_of([], 1).last) == (0, 0)


def test_what_is_not_a_number_is_the_first_page() -> None:
    assert [number_of(given) for given in (None, "", "x", "-1", "7", "9" * 5000)] == [1, 1, 1, 1, 7, 1]
