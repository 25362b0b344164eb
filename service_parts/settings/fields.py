"""What the models of settings are made of. Pure.

Durations are read from numbers of milliseconds or text such as `7d`, sizes from numbers of bytes or text such
as `10GiB`.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service_parts.settings.units import BYTES_MAX, MILLISECONDS_MAX, byte_count, duration_ms


class Settings(BaseModel):
    """A group of settings. It does not change once built, refuses a name that it does not know, and takes
    finite numbers only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _duration_or_number(value: object) -> object:
    # Python and TOML know `true` as a kind of 1; as a duration it is a slip.
    return duration_ms(str(value)) if isinstance(value, str | bool) else value


def _size_or_number(value: object) -> object:
    return byte_count(str(value)) if isinstance(value, str | bool) else value


Milliseconds = Annotated[int, BeforeValidator(_duration_or_number), Field(le=MILLISECONDS_MAX)]
Bytes = Annotated[int, BeforeValidator(_size_or_number), Field(le=BYTES_MAX)]
