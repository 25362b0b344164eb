"""A target whose process crashes on one byte, like a fault of the engine in C."""

import os
from typing import Final

from fuzz.target import Target


def run(data: bytes) -> int:
    """`!` kills."""
    if b"!" in data:
        os.abort()
    return len(data)


TARGET: Final = Target("tests.fuzz.crashing", run, seconds_max=0.2, guided=False, words=(b"!",))
