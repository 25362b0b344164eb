"""The examples work as they describe, against the real node."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.amqp_streams.client.running import RunningNode

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--log=temps:1", "--log=shared:4").start()
    yield running
    running.stop()


def run(example: str, *arguments: str | Path) -> str:
    """Run an example as a module, which tests do in a fork."""
    return _printed(["-m", f"examples.{example}", *arguments])


def _printed(arguments: Sequence[str | Path]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_sending_and_receiving_twice(node: RunningNode) -> None:
    script = (ROOT / "examples" / "client_send_and_receive.py", node.url)
    assert "1003 events" in _printed(script)
    assert "2006 events" in _printed(script)


def test_blocking_and_going_on_where_it_stopped(node: RunningNode, tmp_path: Path) -> None:
    arguments = (node.url, "temps", tmp_path / "position.json")
    assert run("client_blocking", node.url, "temps") == "10 events up to 0:9\n"
    assert run("client_go_on_where_it_stopped", *arguments) == "10 new events\n"
    assert run("client_go_on_where_it_stopped", *arguments) == "0 new events\n"
    run("client_blocking", node.url, "temps")
    assert run("client_go_on_where_it_stopped", *arguments) == "10 new events\n"


def test_two_of_a_group_share_the_work_and_the_next_continues_after_them(node: RunningNode) -> None:
    run("client_blocking", node.url, "shared")
    program = [sys.executable, "-m", "examples.client_group", node.url, "shared", "--until-idle", "2"]
    both = [subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(int(found) for found in re.findall(r"^(\d+) events done", "".join(told), re.MULTILINE)) == 10
    assert "partition 0 is ours" in "".join(told)
    assert "0 events done" in run("client_group", node.url, "shared", "--until-idle", "0.1")
