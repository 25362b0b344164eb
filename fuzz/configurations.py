"""Configurations of a program, from choices: environment variables and a configuration file."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fuzz.draw import Draw

_Name = TypeVar("_Name")


def configuration(
    draw: Draw,
    names: Sequence[_Name],
    variable_of: Callable[[_Name], str],
    values: Sequence[str],
    words: Sequence[str],
) -> tuple[dict[str, str], bytes]:
    """Returns an environment and the bytes of a file: the rest of the input as it is, or settings of `names`
    with `values` in the environment, and a file of `words`.
    """
    if draw.chance(2):
        return {}, draw.rest()
    environment: dict[str, str] = {}
    for _ in range(draw.below(4)):
        environment[variable_of(draw.pick(names))] = (
            draw.pick(values) if not draw.chance(4) else draw.text(20)
        )
    lines = (
        draw.pick((" ", "", " = ")).join(draw.pick(words) for _ in range(draw.below(5)))
        for _ in range(draw.below(8))
    )
    return environment, "\n".join(lines).encode()
