"""[io] Runs the tests in processes that are forks: `pytest -p tests.forks --forks 4`, as `make test` does.

The tests are collected once, which takes 10 s of CPU, and the forks share what was collected. A fork takes
one unit of tests after another, the longest first, and sends one short message for each test. More forks than
cores are better than as many: half of the time, a test waits for a disk or for another process.

A unit is a file, because the tests of a file share nodes; or all files that use Spark, or half of those that
use Kafka, because a JVM costs as much as two thousand tests; or all files of a folder in `TOGETHER`; or one
test of a file in `SPREAD`.
"""

import os
import pickle
import select
import signal
import struct
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple

import pytest

from tests.costs import Cost, now, table

SPARK: Final = "spark"
KAFKA: Final = "kafka"
NODES_ON_KAFKA: Final = "kafka, nodes"
"""Tests with processes on Kafka have brokers of their own: they wait most of their time, and all tests with
Kafka one after another would take longer than all other tests.
"""
_NODES: Final = "tests/acceptance/"
_SHARED: Final = {SPARK: "spark: SparkSession", KAFKA: "kafka: Cluster"}
"""What the tests of many files share, and how their functions take it."""
FIRST: Final[tuple[tuple[str, ...], ...]] = (
    (SPARK,),
    (KAFKA,),
    ("tests/web_console/browser/",),
    ("tests/test_tutorial.py", "tests/test_start.py"),
    ("tests/attack/",),
    # The former wait most of their time, the latter compute.
    ("tests/acceptance/", "tests/simulation"),
    ("tests/bench/test_chaos.py",),
    ("tests/crash/", "tests/fuzz/"),
    ("tests/knative_gateway/test_server.py",),
    ("tests/test_extras.py",),
    ("tests/tools/release/test_building.py",),
    ("tests/deploy/",),
    ("tests/knative_gateway/api/test_kubectl.py",),
    ("tests/amqp_streams/client/test_batches_against_server.py",),
    ("tests/amqp_streams/client/test_against_server.py",),
    ("tests/amqp_streams/client/test_examples.py",),
    ("tests/knative_gateway/store/test_silent_database.py",),
)
"""What the forks begin with: while a long unit runs at the end, the other forks wait. Units of one row take
turns. The other files follow by the number of their tests.
"""
SPREAD: Final = (
    "tests/acceptance/",
    "tests/fuzz/test_smoke.py",
    "tests/simulation/test_simulation.py",
    "tests/simulation_gateway/test_simulation_gateway.py",
    "tests/test_extras.py",
    "tests/test_start.py",
)
"""Files whose tests may run in any fork: they share nothing, and each takes long."""
TOGETHER: Final = ("tests/web_console/browser/",)
"""Folders whose files share what takes long to start."""
_ENDED: Final = (*_SHARED, NODES_ON_KAFKA, *TOGETHER)
"""Units whose last test ends all fixtures, also those of the session: brokers that wait for the end of their
fork take a tenth of a core.
"""
_FOLDER: Final = "fork-"

_INDEX: Final = struct.Struct("<I")
_END: Final = -1
"""Instead of the index of a test: the fork has run all its units."""


class Phase(NamedTuple):
    """How the setup, the call or the teardown of a test went. `report` is None if it passed."""

    when: Literal["setup", "call", "teardown"]
    duration: float
    report: dict[str, Any] | None


@cache
def shared_by(file: Path) -> str | None:
    """What some test of this file shares with other files: Spark's session, Kafka's brokers."""
    text = file.read_text(encoding="utf-8")
    return next((name for name, taken in _SHARED.items() if taken in text), None)


def unit_of(nodeid: str, root: Path) -> str:
    """The unit to which a test belongs."""
    file = nodeid.split("::", 1)[0]
    shared = shared_by(root / file)
    # Each fork with a test that needs brokers would start three of them.
    if shared == KAFKA:
        return NODES_ON_KAFKA if file.startswith(_NODES) else KAFKA
    if file.startswith(SPREAD):
        return nodeid
    return shared or next((folder for folder in TOGETHER if file.startswith(folder)), file)


def units(nodeids: Sequence[str], root: Path) -> list[list[int]]:
    """The indices of the tests of each unit, in the order in which the units begin."""
    members: dict[str, list[int]] = {}
    for index, nodeid in enumerate(nodeids):
        members.setdefault(unit_of(nodeid, root), []).append(index)
    return [members[name] for name in _in_order(members)]


def _in_order(members: Mapping[str, Sequence[int]]) -> list[str]:
    """The names of the units, in the order in which they begin."""
    kinds = [(row, place, start) for row, starts in enumerate(FIRST) for place, start in enumerate(starts)]
    turns: Counter[tuple[int, int]] = Counter()
    keys: dict[str, tuple[int, int, int]] = {}
    for name in sorted(members, key=lambda name: -len(members[name])):
        row, place = next(
            ((row, place) for row, place, start in kinds if name.startswith(start)), (len(FIRST), 0)
        )
        keys[name] = (row, turns[row, place], place)
        turns[row, place] += 1
    return sorted(members, key=lambda name: keys[name])


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files that all forks of a run share."""
    folder = factory.getbasetemp()
    return folder.parent if folder.name.startswith(_FOLDER) else folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--forks", type=int, default=0, help="run the tests in this many forks")
    parser.addoption("--costs", help="print what the units took, and write what each test took to this file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, if they are asked for."""
    count = session.config.getoption("forks")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one folder, of all forks
    parent = Parent(session, count)
    parent.run()
    parent.print_costs()
    return True


class Parent:
    """Starts the forks and reports what they tell."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session: Final = session
        self._units: Final = units([item.nodeid for item in session.items], session.config.rootpath)
        self._missing: Final = set(range(len(session.items)))
        self._forks: Final[dict[int, tuple[int, bytearray]]] = {}
        self._begun: Final[dict[int, int]] = {}
        self._ended: Final[list[str]] = []
        self._count: Final = count
        self._costs: Final[dict[str, list[Cost]]] = {}
        path = session.config.getoption("costs")
        # Line by line: what a run that is stopped has done can be read.
        self._written: Final = Path(path).open("w", encoding="utf-8") if path else None  # noqa: SIM115
        self._began: Final = now()

    def run(self) -> None:
        """Run all tests."""
        reading, writing = os.pipe()
        # Far below the capacity of a pipe; each fork reads the next number.
        os.write(writing, b"".join(map(_INDEX.pack, range(len(self._units)))))
        os.close(writing)
        try:
            for number in range(self._count):
                self._start(number, reading)
            while self._forks:
                for descriptor in select.select(list(self._forks), [], [])[0]:
                    self._read(descriptor)
        finally:
            os.close(reading)
            self._kill()
        for index in sorted(self._missing):
            words = "did not end: " + (", ".join(self._ended) or "its process has ended")
            self._report(_report_of(self._session.items[index], "failed", words, Phase("call", 0.0, None)))

    def _start(self, number: int, indices: int) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            os.close(reading)
            for descriptor in self._forks:
                os.close(descriptor)
            run_fork(Fork(self._session, self._units, number, indices, writing))
        os.close(writing)
        self._forks[reading] = (pid, bytearray())

    def _count_costs(self, index: int, cost: Cost) -> None:
        name = self._session.items[index].nodeid
        self._costs.setdefault(unit_of(name, self._session.config.rootpath), []).append(cost)
        if self._written is not None:
            times = (cost.began.time - self._began.time, cost.wall, cost.own, cost.children)
            print(cost.fork, *(f"{one:.3f}" for one in times), name, sep="\t", file=self._written, flush=True)

    def print_costs(self) -> None:
        """Print the table, if it is asked for."""
        if self._written is not None:
            self._written.close()
            print("\n", *table(self._costs, self._began.time), sep="\n")

    def _read(self, descriptor: int) -> None:
        pid, buffer = self._forks[descriptor]
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._end(descriptor)
            return
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= 4 + (length := _INDEX.unpack_from(buffer)[0]):
            index, phases, cost = pickle.loads(bytes(buffer[4 : 4 + length]))
            del buffer[: 4 + length]
            if index == _END:
                self._end(descriptor)
            elif phases is None:
                self._begun[pid] = index
            else:
                self._missing.discard(index)
                self._count_costs(index, cost)
                for phase in phases:
                    self._tell(index, Phase(*phase))
                self._stop_if_wanted()

    def _stop_if_wanted(self) -> None:
        """Raise what ends the run after this test, whatever the forks have sent of later ones."""
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _end(self, descriptor: int) -> None:
        pid, _ = self._forks.pop(descriptor)
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            test = self._session.items[self._begun[pid]].nodeid if pid in self._begun else "its start"
            self._ended.append(f"a process ended with status {status} at {test}")

    def _tell(self, index: int, phase: Phase) -> None:
        item = self._session.items[index]
        config = self._session.config
        if phase.report is not None:
            self._report(config.hook.pytest_report_from_serializable(config=config, data=phase.report))
        elif phase.when == "call" or config.option.durations is not None:
            self._report(_report_of(item, "passed", None, phase))

    def _report(self, report: pytest.TestReport) -> None:
        self._session.config.hook.pytest_runtest_logreport(report=report)

    def _kill(self) -> None:
        for descriptor, (pid, _) in self._forks.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(descriptor)
        self._forks.clear()


def _report_of(
    item: pytest.Item, outcome: Literal["passed", "failed"], words: str | None, phase: Phase
) -> pytest.TestReport:
    return pytest.TestReport(
        item.nodeid, item.location, {}, outcome, words, phase.when, duration=phase.duration
    )


class Fork:
    """Runs units in a fork, and tells the parent of each test."""

    def __init__(
        self, session: pytest.Session, units: list[list[int]], number: int, indices: int, writing: int
    ) -> None:
        self._session: Final = session
        self._number: Final = number
        self._units: Final = units
        self._indices: Final = indices
        self._writing: Final = writing
        self._phases: Final[list[Phase]] = []

    def run(self) -> None:
        """Run units until none is left."""
        config = self._session.config
        root = config.rootpath
        todo = self._next()
        index = next(todo, None)
        while index is not None:
            self._send(index, None)
            began = now()
            # The fixtures of the unit end with its last test, so the next test must be known before.
            after = next(todo, None)
            item = self._session.items[index]
            following = None if after is None else self._session.items[after]
            unit = unit_of(item.nodeid, root)
            if following is not None and unit in _ENDED and unit != unit_of(following.nodeid, root):
                following = None
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._send(index, [tuple(phase) for phase in self._phases], Cost(self._number, began, now()))
            self._phases.clear()
            index = after
        # A process that a test left behind may keep the pipe open.
        self._send(_END, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what the parent must know."""
        passed = report.passed and not hasattr(report, "wasxfail")
        config = self._session.config
        data = None if passed else config.hook.pytest_report_to_serializable(config=config, report=report)
        assert report.when is not None
        self._phases.append(Phase(report.when, report.duration, data))

    def _next(self) -> Iterator[int]:
        while record := os.read(self._indices, _INDEX.size):
            yield from self._units[_INDEX.unpack(record)[0]]

    def _send(self, index: int, phases: list[Any] | None, cost: Cost | None = None) -> None:
        message = pickle.dumps((index, phases, cost))
        message = _INDEX.pack(len(message)) + message
        while message:
            message = message[os.write(self._writing, message) :]


def run_fork(fork: Fork) -> None:
    """Run a fork to its end, with an output and a folder for temporary files of its own. Does not return."""
    status = 1
    try:
        config = fork._session.config
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        manager = config.pluginmanager
        reporter: Any = manager.unregister(name="terminalreporter")
        # Only the parent prints progress. pytest-timeout needs the writer, for the stacks of a test.
        manager.register(SimpleNamespace(_tw=reporter._tw), "terminalreporter")
        manager.register(fork, "fork")
        capture.start_global_capturing()
        capture.suspend_global_capture()
        factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]  # as pytest's own fixtures take it
        folder = factory.getbasetemp() / f"{_FOLDER}{fork._number}"
        folder.mkdir(mode=0o700)
        factory._basetemp = folder
        fork.run()
        status = 0
    except BaseException:  # noqa: BLE001  it ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
