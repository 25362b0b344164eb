"""A cursor over the tokens of a text, which also joins names with hyphens. Spec: FILTEX 6.4.4.4, 6.4.4.6.

Law: words with hyphens and without spaces between them are one name if the standards define such a name. A
name of application-properties is never joined: by the grammar, `a.x-y` is a difference, and `a.[x-y]` is the
field.
"""

from amqp_streams.filters.fields import SECTIONS, field_name, known_field
from amqp_streams.filters.language.lexer import Kind, Token
from amqp_streams.filters.language.syntax import Dialect
from amqp_streams.filters.refusal import FilterError, Limits


class Cursor:
    """The tokens of one text, read from the first to the last."""

    __slots__ = ("_at", "_text", "_tokens", "depth", "dialect", "limits")

    def __init__(self, text: str, tokens: list[Token], dialect: Dialect, limits: Limits) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self.dialect = dialect
        self.limits = limits
        self.depth = 0

    @property
    def tokens(self) -> list[Token]:
        """All tokens, read or not."""
        return self._tokens

    @property
    def after_next(self) -> Token:
        """The token after the next one."""
        # The last token is END, which stands for everything beyond the text.
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    @property
    def next(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def advance(self) -> Token:
        """Consume and return the next token. The end of the text must not be consumed."""
        token = self._tokens[self._at]
        self._at += 1
        return token

    def is_(self, text: str) -> bool:
        """Whether the next token is this keyword or mark."""
        return self.next.text == text and self.next.kind in (Kind.KEYWORD, Kind.MARK)

    def take(self, text: str) -> bool:
        """Consume the next token if it is this keyword or mark."""
        taken = self.is_(text)
        # A boolean is 0 or 1.
        self._at += taken
        return taken

    def expect(self, text: str) -> None:
        """Consume this keyword or mark.

        Raises:
            FilterError: the next token is a different one.
        """
        if not self.take(text):
            raise self.unexpected(text)

    def unexpected(self, wanted: str) -> FilterError:
        """The error for a next token that is not valid here."""
        token = self.next
        found = (
            "the text ends"
            if token.kind is Kind.END
            else f"found {self._text[token.start : token.end][:64]!r}"
        )
        return FilterError(f"{found}, but expected {wanted}", token.start + 1)

    def deeper(self, start: int) -> None:
        """Enter one more level of nesting. Raises FilterError beyond the limit."""
        self.depth += 1
        if self.depth > self.limits.depth:
            reason = f"nested more than {self.limits.depth} levels deep"
            raise FilterError(reason, start + 1)

    def section(self, first: Token) -> int | None:
        """Return the section whose name begins at `first`, and consumes the name.

        None if it is not the name of a section with a dot after it. `first` is the token that was consumed
        last.
        """
        # The longest name first: `delivery-annotations` also begins with a shorter word.
        for written, after in reversed(self._joined(first)):
            if (
                written in SECTIONS
                and self._tokens[after].text == "."
                and self._tokens[after].kind is Kind.MARK
            ):
                self._at = after
                return SECTIONS[written]
        return None

    def hyphenated(self, first: Token, section: int) -> str:
        """Return the longest name of a field that begins at `first`, and consumes it.

        `p.content-type` is a name, and `p.group-sequence-a.n` is a difference.
        """
        spelled = self._joined(first)
        if field_name(section, "?") is None:
            # Only names that the standards define are joined by hyphens; another hyphen is a minus.
            spelled = [
                (written, after) for written, after in spelled if known_field(section, written)
            ] or spelled[:1]
        written, self._at = spelled[-1]
        return written

    def _joined(self, first: Token) -> list[tuple[str, int]]:
        """Return the names that `first` and the words after its hyphens can form, the shortest first.

        Each name comes with the index of the token after it.
        """
        made = [(first.text, self._at)]
        at, end = self._at, first.end
        while True:
            hyphen, word = self._tokens[at], self._tokens[min(at + 1, len(self._tokens) - 1)]
            if (
                hyphen.text != "-"
                or hyphen.start != end
                or word.kind not in (Kind.NAME, Kind.KEYWORD)
                # With a space on either side, the hyphen is a minus.
                or word.start != hyphen.end
            ):
                return made
            at, end = at + 2, word.end
            made.append((self._text[first.start : end], at))
