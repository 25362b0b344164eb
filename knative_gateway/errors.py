"""The error tree of the gateway: each class is one answer that a caller can get."""

from typing import Final


class GatewayError(Exception):
    """Root of everything this package raises on purpose."""


class UnauthenticatedError(GatewayError):
    """Nobody says who sends this, or it is not believed (401)."""


class ForbiddenError(GatewayError):
    """Whoever sends this may not (403)."""


class BadRequestError(GatewayError):
    """The request is not valid, or the log rejects its event (400). The message names what is wrong and where."""


class UnsupportedMediaError(GatewayError):
    """The request has a content coding that the gateway does not read (415)."""


class TooLargeError(GatewayError):
    """The request or the event is larger than the limit (413)."""


class OverloadedError(GatewayError):
    """The log pushes back (429): try again after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s: Final = retry_after_s
        super().__init__(message)


class UnavailableError(GatewayError):
    """The log is away (503): nothing is known of what was sent."""


class ConfigError(GatewayError):
    """A setting that cannot be: the message names it, where it was read, and what is allowed."""


class ConflictError(GatewayError):
    """The object changed since the version that the writer saw, or one of that name exists already (409)."""


class GoneError(GatewayError):
    """The watch feed does not reach back to the version asked for (410): list again."""
