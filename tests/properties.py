"""How many examples a property takes that says its own number."""

from math import ceil
from typing import Final

from hypothesis import settings

_USUAL: Final = 100
"""Hypothesis' own number. A profile with fewer takes the same part of each number."""


def examples(count: int) -> int:
    """`count`, or the part of it that the profile takes (tests/conftest.py)."""
    return ceil(count * settings().max_examples / _USUAL)
