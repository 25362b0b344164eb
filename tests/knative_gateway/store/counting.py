"""Counts the statements that the databases of a test receive."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Commits and statements until the block ends."""
    found: Counter[str] = Counter()

    def commit(_connection: object) -> None:
        found["commits"] += 1

    def statement(*_given: object) -> None:
        found["statements"] += 1

    event.listen(Engine, "commit", commit)
    event.listen(Engine, "before_cursor_execute", statement)
    try:
        yield found
    finally:
        event.remove(Engine, "commit", commit)
        event.remove(Engine, "before_cursor_execute", statement)
