"""The results of a filter for the events of a page."""

from web_console.showing.browsing import Row, Slice
from web_console.showing.trying import FALSE, MATCHES, NO_MATCH, UNKNOWN, slices_of, tried


def row(partition: str, offset: int) -> Row:
    return Row(partition, offset, 0, 1, "", "", "")


ROWS = [row("0", 5), row("1", 2), row("0", 9)]


def test_only_the_events_of_the_page_are_read_again() -> None:
    assert slices_of(ROWS) == [Slice("0", 5, 10), Slice("1", 2, 3)]
    assert slices_of([]) == []


def test_an_event_matches_or_its_result_is_false_or_unknown() -> None:
    found = tried(ROWS, {("0", 5)}, {("0", 9), ("7", 1)})
    assert [result for _, result in found.rows] == [MATCHES, UNKNOWN, FALSE]
    assert (found.matches, found.unknown) == (1, 1)


def test_without_the_negation_false_and_unknown_are_one() -> None:
    found = tried(ROWS, {("0", 5)}, None)
    assert [result for _, result in found.rows] == [MATCHES, NO_MATCH, NO_MATCH]
    assert found.unknown == 0
