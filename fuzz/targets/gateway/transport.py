"""A transport without a socket: what is written to it can be looked at."""

import asyncio
from typing import Any

from fuzz.target import WrongError


class Transport(asyncio.Transport):
    """`written`: all bytes so far."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = self.is_ended = False

    def write(self, data: Any) -> None:
        if self.is_ended:
            raise WrongError("something is written after the end")
        self.written += data

    def write_eof(self) -> None:
        self.is_ended = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = self.is_ended = True

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
