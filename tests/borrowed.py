"""Tests of a package that another file runs as well, for example with another store."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any


def modules(package: ModuleType) -> list[ModuleType]:
    """The modules of a package that have tests, by name."""
    names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    return [
        importlib.import_module(f"{package.__name__}.{name}")
        for name in sorted(names)
        if name.startswith("test_")
    ]


def cases(module: ModuleType, *, with_any: frozenset[str] = frozenset()) -> dict[str, Callable[..., Any]]:
    """The tests of a module by name; only those with one of the fixtures `with_any`, if there are any."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and (not with_any or with_any & inspect.signature(test).parameters.keys())
    }
