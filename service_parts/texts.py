"""Texts of others as people read them. Pure."""


def printable(text: str, *, also: str = "") -> str:
    """Return the text with escapes in place of the characters that break a line, act on a terminal, or change
    how the text around them is shown. `also`: such characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in also else ascii(one)[1:-1] for one in text)
