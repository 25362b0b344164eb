"""Valid names and values of attributes, and the messages for invalid ones. CloudEvents 1.0, 2.2, 2.3, 3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.attributes import check, check_name, shown, text_of
from event_formats.errors import InvalidEventError
from tests.event_formats.events import events

EVENT: dict[str, str | bool | int | bytes] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


@given(events())
def test_everything_that_the_standard_allows_passes(event: object) -> None:
    check(event.attributes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_the_four_required_ones_are_missed_by_name(name: str) -> None:
    with pytest.raises(InvalidEventError, match=f"^{name} is missing$"):
        check({key: value for key, value in EVENT.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("specversion", "2.0", "use 1.0 or 0.3"),
        ("specversion", "1.0.1", "is not supported"),
        ("specversion", 1, "is not supported"),
        ("id", "", "id is empty"),
        ("id", 5, "id is 5, not a string"),
        ("type", "", "type is empty"),
        ("source", "", "source is empty"),
        ("source", ":x", "not a URI-reference"),
        ("source", "a b:c", "not a URI-reference"),
        ("source", "1a:c", "not a URI-reference"),
        ("subject", "", "subject is empty"),
        ("subject", True, "not a string"),
        ("subject", "a\nb", r"U\+000A at 1"),
        ("subject", "a\x85", r"U\+0085"),
        ("subject", "\ufffe", r"U\+FFFE"),
        ("subject", "\ud800", r"U\+D800"),
        ("other", "\x00", r"U\+0000"),
        ("other", 1 << 31, "32 bits"),
        ("other", -(1 << 31) - 1, "32 bits"),
        ("dataschema", "/relative", "not an absolute URI"),
        ("dataschema", "urn:", "not an absolute URI"),
        ("dataschema", "", "not an absolute URI"),
        ("time", "yesterday", "RFC 3339"),
        ("time", "2024-05-01", "RFC 3339"),
        ("time", "2024-05-01T12:00:00", "RFC 3339"),
        ("time", "2024-05-01 12:00:00Z", "RFC 3339"),
        ("time", "2024-02-30T12:00:00Z", "RFC 3339"),
        ("time", "2023-02-29T12:00:00Z", "RFC 3339"),
        ("time", "1900-02-29T12:00:00Z", "RFC 3339"),
        ("time", "2024-04-31T12:00:00Z", "RFC 3339"),
        ("time", "2024-13-01T12:00:00Z", "RFC 3339"),
        ("time", "2024-05-01T24:00:00Z", "RFC 3339"),
        ("time", "2024-05-01T12:00:00.Z", "RFC 3339"),
        ("time", "٢٠٢٤-05-01T12:00:00Z", "RFC 3339"),
        ("time", 1714564, "not a string"),
        ("datacontenttype", "json", "RFC 2046"),
        ("datacontenttype", "a/b; c", "RFC 2046"),
        ("datacontenttype", "a/b, c/d", "RFC 2046"),
        ("datacontenttype", "ä/b", "RFC 2046"),
        ("datacontenttype", "", "RFC 2046"),
    ],
)
def test_invalid_attributes_are_refused_by_name(name: str, value: str | int, words: str) -> None:
    with pytest.raises(InvalidEventError, match=words) as refused:
        check({**EVENT, name: value})
    assert name in str(refused.value) or "attribute" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", "https://example.com/a:b?c:d"),
        ("source", "a b"),
        ("source", "./x:y"),
        ("source", "größe"),
        ("time", "1985-04-12T23:20:50.52Z"),
        ("time", "1990-12-31T23:59:60Z"),
        ("time", "1996-12-19t16:39:57-08:00"),
        ("time", "2024-02-29T00:00:00.123456789+05:30"),
        ("time", "2000-02-29T00:00:00z"),
        ("datacontenttype", 'text/plain; charset="utf-8"; x=y'),
        ("datacontenttype", "application/json;"),
        ("datacontenttype", "a/" + "b" * 300),
        ("dataschema", "urn:x"),
        ("other", ""),
        ("other", "äöü 😀"),
        ("other", False),
        ("other", b"\x00\xff"),
    ],
)
def test_valid_attributes_pass(name: str, value: str | bool | bytes) -> None:
    check({**EVENT, name: value})
    check({**EVENT, name: value})  # also when it was seen before
    check({**EVENT, "specversion": "0.3", name: value})


@pytest.mark.parametrize("name", ["", "A", "ä", "a_b", "a-b", "a b", "data", "a" * 129, "a\n"])
def test_a_name_has_lower_case_letters_and_digits(name: str) -> None:
    """CloudEvents 1.0, 2.2: lower-case letters and digits; `data` is not a valid name."""
    with pytest.raises(InvalidEventError):
        check_name(name)


@given(st.text("abcxyz019", min_size=1, max_size=128))
def test_every_other_name_is_one(name: str) -> None:
    assert check_name(name) == name


def test_values_have_one_text_each() -> None:
    """CloudEvents 1.0, 2.3: the canonical string encodings."""
    assert [text_of(value) for value in ("a", True, False, -5, b"\xff\xfe")] == [
        "a",
        "true",
        "false",
        "-5",
        "//4=",
    ]


def test_shown_values_are_short() -> None:
    assert shown("a") == "'a'"
    assert len(shown("a" * 1000)) == 80


def test_a_media_type_of_many_spaces_takes_no_time() -> None:
    """The sender must not cause work: the pattern never reads a byte twice."""
    with pytest.raises(InvalidEventError):
        check({**EVENT, "datacontenttype": "a/b" + "; \t" * 20_000 + "!" + " " * 20_000 + "?"})
