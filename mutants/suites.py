"""The suites that look for mutants, as commands, and what their exit statuses mean."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_TESTS_FAILED: Final = 1  # pytest: tests ran and failed. Other statuses say that the run itself is broken


@dataclass(frozen=True, slots=True)
class Suite:
    """How a suite is run.

    `command` takes what a mutant gives for the suite. `limit_s` bounds a run; a run that takes longer counts as
    broken, not as a find, because a slow machine finds nothing.
    """

    what: str
    command: Callable[[str], Sequence[str]]
    environment: Callable[[str], Mapping[str, str]] = field(default=lambda _: {})
    limit_s: float = 600
    found: frozenset[int] = frozenset({_TESTS_FAILED})


def _pytest(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *arguments,
    ]


def _seeds(prefix: str) -> Callable[[str], Mapping[str, str]]:
    return lambda count: {f"{prefix}_SEEDS": count}


SUITES: Final[Mapping[str, Suite]] = {
    "sim": Suite(
        "simulation of the node",
        lambda _: _pytest("tests/simulation"),
        environment=_seeds("SIM"),
    ),
    "simgateway": Suite(
        "simulation of the gateway",
        lambda _: _pytest("tests/simulation_gateway"),
        environment=_seeds("SIM_GATEWAY"),
    ),
    "fuzz": Suite(
        "fuzzing",
        lambda target: [
            sys.executable,
            "-m",
            "fuzz",
            "run",
            *target.split(),
            "--seed",
            "1",
            "--seconds",
            "60",
            "--engine",
            "mutator",
            "--jobs",
            "1",
        ],
    ),
    "attack": Suite(
        "attack tables", lambda cases: [sys.executable, "-m", "attack", "--short", *cases.split()]
    ),
    "test": Suite("tests of `make test`", lambda tests: _pytest(*tests.split())),
}
