"""A process that is forked is like one that the system starts. Each test runs both ways."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.gateway import GatewayProcess
from examples.node import NodeProcess
from tests.preloaded.launching import IN_A_FORK, real_commands

_FORKED = "import sys; print('knative_gateway.server' in sys.modules)"
_SHOWN = """
import json, os, signal, sys
numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
descriptors = sorted(map(int, os.listdir("/proc/self/fd")))
print(json.dumps([
    sys.argv, __name__, os.getcwd(), dict(os.environ), os.getppid(), os.getsid(0) == os.getpid(),
    sys.stdin.read(), descriptors[:-1],
    [str(signal.getsignal(number)) for number in numbers],
    sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
]))
"""


@pytest.fixture(params=["forked", "by the system"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How the processes of a test start."""
    if request.param == "forked":
        yield "forked"
        return
    with real_commands():
        yield "by the system"


def run(code: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IN_A_FORK + code, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def shown(folder: Path) -> object:
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_FORK + _SHOWN, "one", "--two=3"],
            input="text ü",
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env={**os.environ, "AMQP_STREAMS_LOG_LEVEL": "ü=1"},
            pass_fds=[writing],
            start_new_session=True,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_it_begins_like_one_of_the_system(tmp_path: Path) -> None:
    forked = shown(tmp_path)
    with real_commands():
        assert forked == shown(tmp_path)


def test_only_a_fork_has_imported_everything(way: str) -> None:
    assert run(_FORKED).stdout == f"{way == 'forked'}\n"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("code", "status", "out", "errors"),
    [
        ("print('whole')", 0, "whole\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('what is wrong')", 1, "", "what is wrong\n"),
        ("import sys; sys.exit(-1)", 255, "", ""),
        ("raise ValueError('bad')", 1, "", "ValueError: bad\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt\n"),
        ("import os; os.abort()", -signal.SIGABRT, "", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "", ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end\n", ""),
        (
            (
                "import threading, time\n"
                "def late():\n    time.sleep(0.05)\n    print('late')\n"
                "threading.Thread(target=late).start()"
            ),
            0,
            "late\n",
            "",
        ),
    ],
)
def test_it_ends_with_the_status_and_the_output(code: str, status: int, out: str, errors: str) -> None:
    done = run(code)
    assert (done.returncode, done.stdout) == (status, out)
    assert done.stderr.endswith(errors)
    assert bool(done.stderr) == bool(errors)


@pytest.mark.usefixtures("way")
def test_a_program_knows_its_name_and_its_status() -> None:
    program = Path(sys.executable).with_name("amqp-streams")
    done = subprocess.run([program, "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: amqp-streams ")
    module = [sys.executable, "-m", "amqp_streams.cli", "nonsense"]
    done = subprocess.run(module, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: amqp-streams ")


@pytest.mark.usefixtures("way")
def test_it_can_be_waited_for_and_killed() -> None:
    code = IN_A_FORK + "import sys; print('begun', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert process.poll() is None
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        assert process.stdout.read() == ""


@pytest.mark.usefixtures("way")
async def test_asyncio_starts_it_too() -> None:
    code = IN_A_FORK + "import sys; sys.exit(len(sys.stdin.read()))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE)
    await process.communicate(b"four")
    assert process.returncode == 4


@pytest.mark.usefixtures("way")
def test_random_numbers_differ() -> None:
    code = "import random; print(random.random())"
    assert run(code).stdout != run(code).stdout


def test_only_a_fork_has_a_small_journal(way: str, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        sizes = {path.stat().st_size for path in (node.data_dir / "journal").iterdir()}
    assert sizes == {(4 if way == "forked" else 64) << 20}


@pytest.mark.parametrize(
    "words",
    [
        [sys.executable, "-X", "dev", "-c", IN_A_FORK + _FORKED],
        [sys.executable, "-c", _FORKED],
        ["/usr/bin/env", sys.executable, "-c", IN_A_FORK + _FORKED],
    ],
)
def test_other_commands_are_left_to_the_system(words: list[str]) -> None:
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"


def test_an_interpreter_that_needs_its_variables_is_left_to_the_system() -> None:
    words = [sys.executable, "-c", IN_A_FORK + "import sys; print(hash('x'), sys.flags.dev_mode)"]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONDEVMODE": "1"}
    one, two = (
        subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(2)
    )
    assert one == two
    assert one.endswith("True\n")


def test_the_preloaded_process_ends_with_the_one_that_asks() -> None:
    """Here one that is killed."""
    code = (
        "import os, signal, subprocess, sys\nfrom tests.preloaded import launching\nlaunching.install()\n"
        "words = [sys.executable, '-c', launching.IN_A_FORK + 'import os; print(os.getppid())']\n"
        "assert int(subprocess.run(words, capture_output=True, check=True).stdout) == os.getpid()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    # The preloaded process has the same stderr, which ends when the last of them has ended.
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_the_node_and_the_workers_of_a_gateway_are_forks_that_end_with_it(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, "--workers", "2") as gateway:
        started = re.findall(r"(?:worker|node)_started .*?pid=(\d+)", gateway.words)
        assert len(started) == 3
        os.kill(int(started[0]), signal.SIGKILL)
        while len(again := re.findall(r"node_started .*?pid=(\d+)", gateway.words)) < 2:
            time.sleep(0.01)
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
        assert {*started[1:], again[1]} <= set(children)
        assert all(b"tests.preloaded" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)
        gateway.kill()
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            time.sleep(0.01)
