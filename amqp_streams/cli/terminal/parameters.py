"""Values of flags that people write with units or in notations of their own, read by the one reader each has."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from amqp_streams.cli.terminal.drafts import parse_property
from amqp_streams.config import log_name
from amqp_streams.quantities import byte_count, duration_ms


class Read(click.ParamType):  # type: ignore[type-arg]  # generic only in click's newest releases
    """A parameter read by a function that raises ValueError with words fit for people."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read: Final = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound that was given: its value, or that there is to be none."""

    value: int | None


def _bound(read: Callable[[str], int]) -> Callable[[str], Bound]:
    return lambda text: Bound(None if text == "none" else read(text))


DURATION: Final = Read("duration", duration_ms)
SIZE: Final = Read("size", byte_count)
DURATION_OR_NONE: Final = Read("duration", _bound(duration_ms))
SIZE_OR_NONE: Final = Read("size", _bound(byte_count))
NAME: Final = Read("name", log_name)
PROPERTY: Final = Read("name=value", parse_property)


def now_ms() -> int:
    """The present, in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def misuse(option: str, error: Exception | str) -> click.UsageError:
    """What a command raises when a flag's value cannot be."""
    return click.BadParameter(str(error), param_hint=f"'{option}'")
