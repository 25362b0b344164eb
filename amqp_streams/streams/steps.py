"""Work in steps: a generator that yields after each step and returns the result.

Law: a step takes a few milliseconds at most, whatever the input is. So a caller can stop between two steps
and serve others, and a large request delays no other one.
"""

from collections.abc import Generator
from typing import Final, TypeVar

EVENTS_A_STEP: Final = 64
"""How many events a step looks at. An event whose annotations must be searched entry by entry takes up to
0.1 ms.
"""

PARTITIONS_A_STEP: Final = 64
"""How many partitions a step describes: this takes about a millisecond."""

T = TypeVar("T")
Steps = Generator[None, None, T]


def finish(steps: Generator[object, None, T]) -> T:
    """Do all steps that are left, without waiting for anything, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
