"""The error tree of the gateway: each class is one answer that a caller can get."""

from typing import Final


class GatewayError(Exception):
    """Root of everything this package raises on purpose."""


class UnauthenticatedError(GatewayError):
    """The request has no valid credentials (401)."""


class ForbiddenError(GatewayError):
    """The sender has no right to do this (403)."""


class BadRequestError(GatewayError):
    """The request is not valid, or the log rejects its event (400).

    The message names what is wrong and where.
    """


class UnsupportedMediaError(GatewayError):
    """The request has a content coding that the gateway does not read (415)."""


class TooLargeError(GatewayError):
    """The request or the event is larger than the limit (413)."""


class OverloadedError(GatewayError):
    """The log cannot accept more events now (429): retry after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s: Final = retry_after_s
        super().__init__(message)


class UnavailableError(GatewayError):
    """The log is unavailable (503): it is unknown whether the event was stored."""


class ConfigError(GatewayError):
    """A setting is not valid. The message names it, where it was read, and what is allowed."""


class ConflictError(GatewayError):
    """The object changed after the version that the writer read, or the name already exists (409)."""


class GoneError(GatewayError):
    """The watch feed no longer has the requested version (410): the client must list again."""
