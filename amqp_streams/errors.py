"""The errors of this package.

The class states whose fault it is: the peer's or the environment's. Our own faults are asserts.
"""

from collections.abc import Mapping
from typing import Final

_DESCRIPTION_MAX: Final = 1024


class AmqpStreamsError(Exception):
    """Root of all errors that this package raises intentionally."""


class PeerError(AmqpStreamsError):
    """The peer's request is not valid or not allowed. The peer gets `condition` and `description`.

    `info` is sent as the error's info map (AMQP 2.8.14), with symbols as keys. The values are short strings
    and numbers, as AMQP types where the standard requires one. The description is cut at 1024 characters.
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


class SettingRefusedError(AmqpStreamsError):
    """The store, or this installation, does not support a setting of a log. The message names the setting."""


class StorageError(AmqpStreamsError):
    """The disk failed: the node accepts nothing that the failure affects."""


class DiskFullError(StorageError):
    """The disk is full: the node refuses producers until there is space. Stored events stay readable."""


class LogDeletedError(StorageError):
    """The log was deleted before its last events were durable. The disk did not fail."""


class CorruptionError(StorageError):
    """Stored bytes are not what was written. The message names the file and the position.

    The offsets from `first` (included) to `after` (excluded) are fenced. `after` is the next readable offset;
    None if none follows.
    """

    def __init__(self, message: str, *, first: int, after: int | None) -> None:
        self.first: Final = first
        self.after: Final = after
        super().__init__(message)


class DirectoryLockedError(StorageError):
    """Another process uses this data directory."""
