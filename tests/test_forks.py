"""Tests run in forks as in one process: each once, with its outcome, its fixtures and its output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

PYTEST = (sys.executable, "-m", "pytest", "-p", "tests.forks", "-q")


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [*PYTEST, "--rootdir", str(folder), *options, str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        # The import of the plugins would take most of the time.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


MANY = """
import pytest
@pytest.mark.parametrize('number', range(50))
def test_there_are_many(number): assert number != 7
"""
MIXED = """
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield tmp_path_factory.mktemp("shared")
    (tmp_path_factory.getbasetemp() / "torn down").touch()

def test_it_passes(shared): print("of a passed test")
def test_it_shares(shared): assert shared.is_dir()
def test_it_fails(): print("of a failed test"); assert 1 == 2
def test_it_captures(capfd): print("x"); assert capfd.readouterr().out == "x\\n"
@pytest.fixture
def broken(): raise ValueError("broken")
def test_it_errs(broken): pass
@pytest.mark.skip(reason="not here")
def test_it_skips(): pass
@pytest.mark.xfail
def test_it_xfails(): assert 0
"""


@pytest.mark.parametrize("count", ["0", "1", "3"])
def test_outcomes_are_those_of_one_process(tmp_path: Path, count: str) -> None:
    """`--forks 0` is pytest's own loop."""
    base = tmp_path / "base"
    done = run(tmp_path, f"--forks={count}", f"--basetemp={base}", test_many=MANY, test_mixed=MIXED)
    assert done.returncode == 1
    assert re.search(r"\n2 failed, 52 passed, 1 skipped, 1 xfailed, 1 error in ", done.stdout), done.stdout
    assert "of a failed test" in done.stdout
    assert "ValueError: broken" in done.stdout
    assert re.search(r"\nFAILED \S*test_many\.py::test_there_are_many\[7\]", done.stdout), done.stdout
    assert len(list(base.rglob("torn down"))) == 1


def test_what_tests_cost_is_printed_and_written_if_it_is_asked_for(tmp_path: Path) -> None:
    code = "import subprocess, sys\ndef test_it_starts(): subprocess.run([sys.executable, '-c', '0'])\n"
    path = tmp_path / "costs.tsv"
    done = run(
        tmp_path, "--forks=2", f"--costs={path}", test_many=MANY.replace("7", "70"), test_starting=code
    )
    assert done.returncode == 0
    assert re.search(r"\n +0\.\d +\d\.\d +\d+\.\d +1  test_starting\.py\n", done.stdout), done.stdout
    assert re.search(r"\n +\d\.\d +0\.0 +\d+\.\d +50  test_many\.py\n", done.stdout), done.stdout
    assert re.search(r"\nfork \d ended after \d+\.\d s\n", done.stdout), done.stdout
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert len(lines) == 51
    (children,) = [float(line[4]) for line in lines if line[5] == "test_starting.py::test_it_starts"]
    assert children > 0


def test_tests_of_a_process_that_was_killed_have_failed(tmp_path: Path) -> None:
    killed = (
        "import os, signal\ndef test_the_first(): pass\n"
        "def test_the_second(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_the_third(): pass\n"
    )
    done = run(tmp_path, "--forks", "2", test_killed=killed, test_many=MANY.replace("7", "70"))
    assert done.returncode == 1
    assert re.search(r"\n2 failed, 51 passed in ", done.stdout), done.stdout
    assert "a process ended with status -9 at test_killed.py::test_the_second" in done.stdout


@pytest.mark.parametrize("count", ["0", "2"])
def test_forks_share_a_folder(tmp_path: Path, count: str) -> None:
    code = (
        "from tests.forks import shared_folder\n"
        "def test_it_writes(tmp_path_factory): (shared_folder(tmp_path_factory) / __name__).touch()\n"
    )
    base = tmp_path / "base"
    done = run(tmp_path, f"--forks={count}", f"--basetemp={base}", test_one=code, test_two=code)
    assert done.returncode == 0, done.stdout
    assert (base / "test_one").exists()
    assert (base / "test_two").exists()


def test_the_first_failure_ends_the_run_if_that_is_wanted(tmp_path: Path) -> None:
    done = run(tmp_path, "--forks", "1", "-x", test_many=MANY)
    assert done.returncode == 1
    assert re.search(r"\n1 failed, 7 passed in ", done.stdout), done.stdout


def test_a_file_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "--forks", "2", test_bad="import nothing_of_this_name", test_many=MANY)
    assert done.returncode == 2
    assert "1 error" in done.stdout


def test_files_with_kafka_brokers_are_two_units(tmp_path: Path) -> None:
    nodes = "tests/acceptance/test_"
    files = {"test_a": True, "test_b": False, "test_c": True, f"{nodes}d": True, f"{nodes}e": True}
    (tmp_path / "tests/acceptance").mkdir(parents=True)
    for name, uses in files.items():
        (tmp_path / f"{name}.py").write_text(f"def test({'kafka: Cluster' if uses else ''})")
    nodeids = [f"{name}.py::1" for name in files]
    assert sorted(forks.units(nodeids, tmp_path)) == [[0, 2], [1], [3, 4]]


SHARING = """
from pathlib import Path

Cluster = object

def test_it_shares(kafka: Cluster): assert Path(kafka).read_text() == ""
"""
AFTER = """
from pathlib import Path

def test_it_comes_later(ended): assert Path(ended).read_text() == "ended"
"""
SHARED = """
import pytest

FILE = {file!r}

@pytest.fixture(scope="session")
def kafka():
    open(FILE, "x").close()
    yield FILE
    open(FILE, "w").write("ended")

@pytest.fixture
def ended(): return FILE
"""


def test_what_files_share_ends_with_the_last_of_them(tmp_path: Path) -> None:
    """It starts once, and does not wait for the end of the fork."""
    files = {"conftest": SHARED.format(file=str(tmp_path / "shared")), "test_a": SHARING, "test_b": AFTER}
    done = run(tmp_path, "--forks", "1", **files, test_c=SHARING)
    assert re.search(r"^3 passed in ", done.stdout, re.MULTILINE), done.stdout


def test_files_with_a_browser_are_one_unit(tmp_path: Path) -> None:
    (together,) = forks.TOGETHER
    for name in (files := (f"{together}test_a.py", "tests/test_b.py", f"{together}test_c.py")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert forks.units([f"{name}::1" for name in files], tmp_path) == [[0, 2], [1]]


def test_units_are_files_spark_and_single_tests(tmp_path: Path) -> None:
    spread = forks.SPREAD[0]
    names = ("tests/a.py", "tests/s.py", "tests/t.py", "tests/b.py", f"{spread}c.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def test(spark: SparkSession)" if name[6] in "st" else "")
    nodeids = ["tests/a.py::1", "tests/s.py::1", "tests/b.py::1", f"{spread}c.py::1"]
    nodeids += ["tests/b.py::2", "tests/t.py::1", f"{spread}c.py::2"]
    assert forks.units(nodeids, tmp_path) == [[1, 5], [3], [6], [2, 4], [0]]


def test_what_waits_and_what_computes_begin_in_turns(tmp_path: Path) -> None:
    waits, computes = next(row for row in forks.FIRST if len(row) > 1)
    names = [f"{waits}{name}.py" for name in "abc"] + [f"{computes}/{name}.py" for name in "de"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    nodeids = [f"{name}::1" for name in names]
    assert forks.units(nodeids, tmp_path) == [[0], [3], [1], [4], [2]]
