"""A target whose process dies of one byte: what a fault of the engine in C looks like."""

import os
from typing import Final

from fuzz.target import Target


def run(data: bytes) -> int:
    """`!` kills."""
    if b"!" in data:
        os.abort()
    return len(data)


TARGET: Final = Target("tests.fuzz.crashing", run, seconds_max=0.2, guided=False, words=(b"!",))
