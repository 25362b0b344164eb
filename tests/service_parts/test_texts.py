"""Texts of others as people read them."""

from service_parts.texts import printable


def test_characters_that_a_terminal_acts_on_are_escaped() -> None:
    assert printable("a\x1b[31mb\tc\u202ed é 漢") == "a\\x1b[31mb\\tc\\u202ed é 漢"
    assert printable("a\n\tb\r", also="\n\t") == "a\n\tb\\r"
