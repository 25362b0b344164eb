"""Settings that every service has, with their values. Pure."""

from enum import StrEnum


class AnonymousAccess(StrEnum):
    """From where a connection without a user is accepted."""

    LOOPBACK = "loopback"
    ALWAYS = "always"
    NEVER = "never"


class LogFormat(StrEnum):
    """How log lines look: for people or for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ProviderToken(StrEnum):
    """Which token of an OpenID Connect provider a console sends to its node or gateway."""

    ACCESS = "access"
    ID = "id"
