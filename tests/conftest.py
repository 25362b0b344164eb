"""What all tests share: how examples are generated, how processes start, and how tests are shared among
workers (tests/forks.py).
"""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st

from tests import forks
from tests.kafka_brokers import kafka, mock_kafka
from tests.preloaded import journals, launching

# A property holds or does not: how long an example takes, to make or to run, depends on what else the machine
# does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test` takes a part of the examples.
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=25)
# `HEAVY=yes make test` tries a half, in each run another one. `make heavy` takes all.
settings.register_profile("half", settings.get_profile("untimed"), max_examples=50)
settings.load_profile("untimed")

# A shell that runs this in the background makes it ignore SIGINT, and with it all processes that tests start
# and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

_GARBAGE_AT = 10_000
"""How many new objects there are when garbage is searched."""

launching.install()
journals.make_small()

__all__ = ["kafka", "mock_kafka"]


@pytest.fixture(scope="session", autouse=True)
def no_contexts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The contexts that the developer has chosen for real nodes do not count in tests."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("contexts"))


@pytest.fixture
def real_commands() -> Iterator[None]:
    """Start the processes of this test as users do: for tests of the start and the end of programs."""
    with launching.real_commands():
        yield


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Collect garbage only when the test says so: for tests of what is free without a collection."""
    gc.collect()
    # What other tests of this process left behind, and a collection cannot free, does not count.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM takes longer to start than a thousand tests."""
    for item in items:
        if {forks.KAFKA, forks.SPARK} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.heavy)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have Hypothesis read the constants of all modules and the tables of Unicode once. Each fork would
    take four seconds of CPU for it, in a new checkout.
    """
    if session.config.getoption("forks", 0):
        find(st.characters(codec="utf-8"), lambda _: True, settings=settings(database=None))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, share the tests in the same units as with `--forks`. pytest 9.2 does not show the marks of
    xdist's own groups.
    """
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - there may be none

    class Units(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            for unit in (forks.KAFKA, forks.SPARK):
                if unit in self.workqueue:
                    self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid: str) -> str:
            return forks.unit_of(nodeid, config.rootpath)

    return Units(config, log)


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
        # Tests make and drop many objects. Python's default of 700 searches them a tenth of the time.
        gc.set_threshold(_GARBAGE_AT, 10, 10)
