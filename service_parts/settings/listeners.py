"""An address to listen on. Pure."""

import re
from typing import Any, Final, Self

from pydantic import Field, model_validator

from service_parts.networks import format_address
from service_parts.settings.fields import Settings

_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%a-z]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>[0-9]{1,5})"
)


class Listener(Settings):
    """One address to listen on: `127.0.0.1:8080`, `[::1]:8080`. Port 0 lets the system choose."""

    host: str = Field(min_length=1)
    port: int = Field(ge=0, le=65_535)

    @classmethod
    def parse(cls, text: str, **more: Any) -> Self:
        """Parse `HOST:PORT`, with an IPv6 host in brackets. `more`: the fields of a subclass.

        Raises:
            ValueError: the text has another form.
        """
        # An IPv6 address needs brackets: its colons would hide the port.
        found = _HOST_PORT.fullmatch(text.strip())
        if found is None or int(found["port"]) > 65_535:
            message = (
                f"{text!r} is not a valid address: use HOST:PORT with a port from 0 to 65535, for example"
                " [::1]:8080"
            )
            raise ValueError(message)
        return cls(host=found["v6"] or found["host"], port=int(found["port"]), **more)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return dict(cls.parse(value)) if isinstance(value, str) else value

    def __str__(self) -> str:
        return format_address(self.host, self.port)
