"""What objects of users have never breaks a page, nor makes it large."""

import pytest

from web_console.gateway import values


@pytest.mark.parametrize("value", [None, [], "text", 7])
def test_what_is_not_a_mapping_is_an_empty_one(value: object) -> None:
    assert values.mapping(value) == {}
    assert values.mapping({"a": value}) == {"a": value}


def test_a_list_is_cut_and_its_items_are_mappings() -> None:
    assert values.mappings([{"a": 1}, 7, {"b": 2}], 2) == [{"a": 1}, {}]
    assert values.mappings("text", 2) == []


def test_a_text_is_cut_with_a_mark() -> None:
    assert values.text(None) == ""
    assert values.text(7) == "7"
    assert values.text("x" * values.TEXT_MAX) == "x" * values.TEXT_MAX
    assert values.text("x" * 501) == "x" * 500 + " …"
    assert values.text("abc", 2) == "ab …"


def test_a_number_is_an_integer_only() -> None:
    assert [values.number(value) for value in (7, True, 1.5, "7", None)] == [7, None, None, None, None]
