"""The error tree: whose fault it is decides the class (house rule: peer, world; our own faults are asserts)."""

from collections.abc import Mapping
from typing import Final

_DESCRIPTION_MAX: Final = 1024


class AmqpStreamsError(Exception):
    """Root of all errors that this package raises intentionally."""


class PeerError(AmqpStreamsError):
    """The peer asked for something it may not have; answered with `condition` and `description`.

    `info` goes into the error's info map (AMQP 2.8.14), its keys as symbols: short strings and numbers, of
    AMQP's types where it matters.
    """

    def __init__(self, condition: str, description: str, info: Mapping[str, str | int] | None = None) -> None:
        self.condition: Final = condition
        self.description: Final = description[:_DESCRIPTION_MAX]
        self.info: Final[dict[str, str | int]] = dict(info or {})
        super().__init__(f"{condition}: {self.description}")


class WireError(AmqpStreamsError):
    """Bytes that are not valid AMQP. The message names what was expected and at which byte."""


class ConfigError(AmqpStreamsError):
    """A setting is not valid. The message names the setting, where it was read, and what is allowed."""


class StorageError(AmqpStreamsError):
    """The disk failed: the node accepts nothing that the failure touched."""


class DiskFullError(StorageError):
    """The disk is full: the node refuses producers until there is space. Stored events stay readable."""


class CorruptionError(StorageError):
    """Stored bytes are not what was written; names the file and the position.

    `first` and `after` are the offsets fenced off: `first` inclusive, `after` exclusive (the next readable
    one, or None).
    """

    def __init__(self, message: str, *, first: int, after: int | None) -> None:
        self.first: Final = first
        self.after: Final = after
        super().__init__(message)


class DirectoryLockedError(StorageError):
    """Another process uses this data directory."""
