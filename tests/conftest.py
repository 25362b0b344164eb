"""How tests are shared among workers: a file stays in one piece, and all files that use Spark go to one
worker, before anything else. Files with one long test follow.

A JVM costs as much as two thousand tests, so only one is started.
"""

import gc
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.preloaded import launching

# A property holds or does not: how long an example takes, to make or to run, depends on what else the machine
# does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

SPARK = "spark"
FIRST = (SPARK, "tests/attack/test_node.py", "tests/attack/test_gateway.py")
"""What workers begin with. xdist begins with the files that have most tests: a file with one test of half a
minute would be the last one, and the other workers would wait for it.
"""
SPREAD = {"tests/simulation/test_simulation.py"}
"""Files whose tests may run in any worker: they share nothing, and each takes seconds."""

# A shell that runs this in the background makes it ignore SIGINT, and with it all processes that tests start
# and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


launching.install()


@pytest.fixture
def real_commands() -> Iterator[None]:
    """Start the processes of this test as users do: for tests of the start and the end of programs."""
    with launching.real_commands():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule tests without xdist's groups: pytest 9.2 does not show their marks, and the groups would not
    run first.
    """
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - there may be none

    class LongFirst(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            for scope in reversed(FIRST):
                if scope in self.workqueue:
                    self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            if file in SPREAD:
                return nodeid
            return SPARK if uses_spark(config.rootpath / file) else file

    return LongFirst(config, log)


@cache
def uses_spark(file: Path) -> bool:
    """Some test of this file takes the session."""
    return f"{SPARK}: SparkSession" in file.read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the collected tests from garbage collection: they are thousands of objects that are never
    released.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
