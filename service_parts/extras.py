"""The error for a missing extra of this distribution. Pure."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DISTRIBUTION: Final = "amqp-event-streams"


class MissingExtraError(ImportError):
    """A library that an extra installs is missing. The message has the command that installs the extra."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the {extra} extra: pip install '{DISTRIBUTION}[{extra}]'")


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Import `what` within this context: it needs the libraries of `extra`.

    Raises:
        MissingExtraError: a library is not installed. If a module is missing from a package that is loaded,
            the original error is raised: the installation is damaged, not incomplete.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # The package is there, but a part of it is missing.
        if error.name is None or error.name.partition(".")[0] in sys.modules:
            raise
        raise MissingExtraError(what, extra) from error
