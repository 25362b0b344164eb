"""The error of this package. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager


class SettingError(Exception):
    """A setting cannot be used. The message says why and where it was read.

    Callers raise their own error from it, and write the name of the setting before the message where it lacks
    one.
    """


@contextmanager
def raised_as(error: type[Exception], setting: str = "") -> Iterator[None]:
    """Raise `error` in place of a SettingError of the block, with its message and its cause.

    `setting`: a name to write before the message.
    """
    try:
        yield
    except SettingError as problem:
        message = f"{setting}: {problem}" if setting else str(problem)
        raise error(message) from problem.__cause__ or problem
