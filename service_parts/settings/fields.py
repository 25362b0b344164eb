"""The base class and the field types of the models of settings. Pure.

Durations are read from numbers of milliseconds or text such as `7d`, sizes from numbers of bytes or text such
as `10GiB`.
"""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from service_parts.settings.units import BYTES_MAX, MILLISECONDS_MAX, byte_count, duration_ms


class Settings(BaseModel):
    """A group of settings. It is immutable, refuses unknown names, and accepts only finite numbers."""

    # Unknown names are refused: a misspelled setting would otherwise have its default.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _duration_or_number(value: object) -> object:
    # In Python, `true` of a TOML file is also the integer 1. As a duration it is a mistake.
    return duration_ms(str(value)) if isinstance(value, str | bool) else value


def _size_or_number(value: object) -> object:
    return byte_count(str(value)) if isinstance(value, str | bool) else value


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        message = f"{text[:64]!r} is not a valid IP address or network: use for example 10.0.0.0/8"
        raise ValueError(message) from None
    return text


Milliseconds = Annotated[int, BeforeValidator(_duration_or_number), Field(le=MILLISECONDS_MAX)]
Bytes = Annotated[int, BeforeValidator(_size_or_number), Field(le=BYTES_MAX)]
TrustedProxy = Annotated[str, AfterValidator(_network)]
"""The address of a proxy, or a network of proxies, for example `10.0.0.0/8`."""
