"""SASLprep: the examples of RFC 4013, and that preparing twice changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.saslprep import PreparationError, prepared_or_same, saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0661\u0628", "\u0627\u0661\u0628"),
        ("", ""),
        ("pass wörd", "pass wörd"),
        ("pass wo\u0308rd", "pass wörd"),
    ],
)
def test_what_looks_alike_becomes_the_same(text: str, prepared: str) -> None:
    """RFC 4013, section 3, and some more."""
    assert saslprep(text, stored=True) == prepared


@pytest.mark.parametrize(
    "text", ["\u0007", "a\u0000", "\u0627\u0031", "a\u0627", "\u200e", "\ud800", "\ue000", "\ufff9", "\U000e0041", "\u2ff0"]
)
def test_control_characters_surrogates_and_mixed_directions_are_refused(text: str) -> None:
    with pytest.raises(PreparationError) as caught:
        saslprep(text)
    assert repr(text)[1:-1] not in str(caught.value)
    assert prepared_or_same(text) == text


def test_characters_that_unicode_3_2_did_not_know_may_be_asked_for_but_not_kept() -> None:
    assert saslprep("\U0001f600") == "\U0001f600"
    with pytest.raises(PreparationError):
        saslprep("\U0001f600", stored=True)


@given(st.text())
def test_preparing_twice_is_preparing_once(text: str) -> None:
    once = prepared_or_same(text)
    assert prepared_or_same(once) == once
