"""The targets by name, each imported when it is wanted (so that its code can be instrumented first)."""

import logging
from importlib import import_module
from typing import Final

import structlog

from fuzz.target import Target

NAMES: Final = (
    "texts",
    "filters",
    "wire",
    "frames",
    "sasl",
    "dialogue",
    "management",
    "client",
    "settings",
    "gateway",
    "requests",
    "server",
)


def load(name: str) -> Target:
    """The target of this name; a name with dots is that of a module elsewhere."""
    target = import_module(name if "." in name else f"fuzz.targets.{name}").TARGET
    assert isinstance(target, Target)
    return target


def quiet() -> None:
    """What a node in this process would log is not wanted: there would be a line for each thing that is wrong
    with an input.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
