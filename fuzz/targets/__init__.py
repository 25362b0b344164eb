"""The targets by name, each imported when it is wanted (so that its code can be instrumented first)."""

import logging
from importlib import import_module
from typing import Final

import structlog

from fuzz.target import Target

MODULES: Final = {
    **{
        name: f"fuzz.targets.engine.{name}"
        for name in (
            "texts",
            "filters",
            "wire",
            "batches",
            "compression",
            "frames",
            "sasl",
            "dialogue",
            "management",
            "client",
            "files",
            "kafka",
            "nodes",
            "settings",
            "server",
        )
    },
    **{
        name: f"fuzz.targets.gateway.{name}"
        for name in (
            "events",
            "requests",
            "replies",
            "triggers",
            "documents",
            "objects",
            "deciding",
            "addresses",
            "configuration",
        )
    },
    "spark": "fuzz.targets.connector.spark",
}
"""The module of each target."""
NAMES: Final = tuple(MODULES)


def load(name: str) -> Target:
    """The target of this name; a name with dots is that of a module elsewhere."""
    target = import_module(MODULES.get(name, name)).TARGET
    assert isinstance(target, Target)
    return target


def quiet() -> None:
    """What a node in this process would log is not wanted: there would be a line for each thing that is wrong
    with an input.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("spark_connector").setLevel(logging.CRITICAL)
