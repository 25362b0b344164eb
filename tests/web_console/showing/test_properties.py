"""Properties as people type them."""

import pytest

from web_console.showing.properties import PROPERTIES_MAX, properties_of


def test_each_line_is_a_property_with_its_type() -> None:
    text = 'a=1\nb = -2.5\nc=true\nd="7"\ne=x=y z\n\nf=\ng=1e5\n'
    assert properties_of(text) == {"a": 1, "b": -2.5, "c": True, "d": "7", "e": "x=y z", "f": "", "g": "1e5"}
    assert properties_of("") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=1\nb", "Line 2"),
        ("=1", "Line 1"),
        ("a=1\na=2", "Line 2 .* second"),
        ("\n".join(f"n{i}=1" for i in range(PROPERTIES_MAX + 1)), "at most"),
    ],
    ids=["no-value", "no-name", "twice", "many"],
)
def test_a_line_that_is_not_valid_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        properties_of(text)
