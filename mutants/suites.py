"""The suites that look for mutants, as commands, and what their exit statuses mean."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_TESTS_FAILED: Final = 1  # pytest: tests ran and failed. Other statuses say that the run itself is broken


@dataclass(frozen=True, slots=True)
class Suite:
    """How a suite is run.

    `command` takes what a mutant gives for the suite. `limit_s` bounds a run; a run that takes longer counts
    as broken, not as a find, because a slow machine finds nothing.
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


SUITES: Final[Mapping[str, Suite]] = {
    "test": Suite("tests of `make test`", lambda tests: _pytest(*tests.split())),
    "sim": Suite(
        "simulation of the node",
        lambda seeds: [sys.executable, "-m", "tests.simulation.runner", "--seeds", seeds, "--jobs", "1"],
    ),
    "simgateway": Suite(
        "simulation of the gateway",
        lambda _: _pytest("tests/simulation_gateway", "--timeout", "600"),
        environment=lambda seeds: {"SIM_GATEWAY_SEEDS": seeds, "PYTHONHASHSEED": "0"},
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
        "attack tables", lambda text: [sys.executable, "-m", "attack", "--short", "--attack", text]
    ),
}
"""The cheapest first."""
