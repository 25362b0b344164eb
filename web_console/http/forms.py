"""The fields of a form, from the bytes of a request. Pure."""

from typing import Final
from urllib.parse import parse_qsl

FORM_BYTES_MAX: Final = 4 << 20
"""A form with an event: its body may grow to three times its size when it is encoded."""
LOGIN_BYTES_MAX: Final = 64 << 10
"""The form of a login: a name, and a password or a token."""
_FIELDS_MAX: Final = 128


class FormError(ValueError):
    """A form cannot be read. The message says why."""


def form_fields(body: bytes) -> dict[str, str]:
    """Return the fields; of fields with the same name the last.

    Raises:
        FormError: it has too many fields, or is not UTF-8.
    """
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except ValueError as error:
        message = "the form cannot be read: it has too many fields, or text that is not UTF-8"
        raise FormError(message) from error
    return dict(pairs)
