"""Errors as sentences, as statuses of HTTP, and as positions in a text. Pure."""

from http import HTTPStatus
from typing import Final

from amqp_streams import names
from amqp_streams.client import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    EndpointError,
    ManagementError,
    TimedOutError,
)

_AROUND: Final = 40
"""Characters that are shown on each side of an error in a text."""
_STATUSES: Final = {
    names.NOT_FOUND: HTTPStatus.NOT_FOUND,
    names.UNAUTHORIZED_ACCESS: HTTPStatus.FORBIDDEN,
}


def is_away(error: BaseException) -> bool:
    """Whether the error means that the node cannot be reached."""
    return isinstance(error, ConnectError | ConnectionLostError | TimedOutError) and not isinstance(
        error, AuthenticationError
    )


def sentence(error: BaseException, address: str = "") -> str:
    """Return what is wrong, and what to do, without codes of the protocol."""
    if isinstance(error, AuthenticationError):
        return "The node refused the login. Check the user and the password."
    if isinstance(error, ClosedError):
        return "This session has ended. Log in again."
    if is_away(error):
        where = f" at {address}" if address else ""
        return f"The node{where} does not answer. The console tries again until it does."
    if isinstance(error, EndpointError | ManagementError):
        words = error.description or "The node refused the request without a reason."
    else:
        words = str(error) or str(type(error).__doc__)
    return words[:1].upper() + words[1:]


def status(error: BaseException) -> int:
    """Return the status of the answer to a request that failed with this error."""
    if is_away(error):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, AuthenticationError | ClosedError):
        return HTTPStatus.UNAUTHORIZED
    if isinstance(error, ManagementError):
        return error.status if 400 <= error.status < 600 else HTTPStatus.BAD_GATEWAY
    if isinstance(error, EndpointError):
        return _STATUSES.get(error.condition, HTTPStatus.BAD_REQUEST)
    return HTTPStatus.BAD_REQUEST


def pointer(text: str, position: int) -> str:
    """Return a part of the line with an error, and below it a `^` at the error.

    `position`: the number of the character, from 1. A number that is too large is the end of the text.
    """
    at = min(max(position, 1), len(text) + 1) - 1
    start = max(text.rfind("\n", 0, at) + 1, at - _AROUND)
    line = text[start : at + _AROUND].partition("\n")[0]
    return f"{line}\n{' ' * (at - start)}^"
