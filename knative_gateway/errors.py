"""The errors of the gateway. Each class corresponds to one answer to a client."""

from typing import Final


class GatewayError(Exception):
    """The base class of all errors that this package raises on purpose."""


class UnauthenticatedError(GatewayError):
    """The request has no valid credentials (401)."""


class ForbiddenError(GatewayError):
    """The sender may not do this (403)."""


class BadRequestError(GatewayError):
    """The request is not valid, or the log rejects its event (400).

    The message names the problem and its location.
    """


class UnsupportedMediaError(GatewayError):
    """The request has a content coding that the gateway does not support (415)."""


class TooLargeError(GatewayError):
    """The request or the event is larger than the limit (413)."""


class OverloadedError(GatewayError):
    """The log cannot accept more events now (429): retry after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s: Final = retry_after_s
        super().__init__(message)


class UnavailableError(GatewayError):
    """The log or the state database is not available (503). It is not known whether the event was stored."""


class RefusedError(UnavailableError):
    """The node refuses the settings of a log. It would refuse the same request again."""


class ConfigError(GatewayError):
    """A setting is not valid. The message names the setting, its source, and the allowed values."""


class InUseError(ConfigError):
    """Another process uses the file or the address."""


class ConflictError(GatewayError):
    """The object was changed after the writer read it, or the name already exists (409)."""


class GoneError(GatewayError):
    """The watch feed does not have the requested version any more (410). The client must list again."""
