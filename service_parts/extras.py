"""What a missing extra of this distribution is reported as. Pure."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DISTRIBUTION: Final = "amqp-event-streams"


class MissingExtraError(ImportError):
    """Something needs libraries that an extra installs. The message names the command that installs them."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the {extra} extra: pip install '{DISTRIBUTION}[{extra}]'")


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """While `what` is imported, which needs the libraries of `extra`.

    Raises:
        MissingExtraError: a library is not installed. A module that is missing from a package that is loaded
        is another fault.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in sys.modules:
            raise
        raise MissingExtraError(what, extra) from error
