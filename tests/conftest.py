"""How tests are shared among workers: a file stays in one piece, and all tests that take `spark` go to one worker, before anything else.

A JVM costs as much as two thousand tests: one is enough.
"""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

SPARK = "spark"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of use with `--dist loadgroup`, which tells us who is of the group."""
    from xdist.scheduler import LoadGroupScheduling  # noqa: PLC0415 - there may be none

    class SparkFirst(LoadGroupScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            if SPARK in self.workqueue:
                self.workqueue.move_to_end(SPARK, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.endswith(f"@{SPARK}") else nodeid.split("::", 1)[0]

    return SparkFirst(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests are objects that stay: the garbage collector need not look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SPARK in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(SPARK))
