"""Child processes end with their parent, and when they are told to."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from service_parts.children import die_with, end_child

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)
SLEEPING = "import time; print(flush=True); time.sleep(60)"
PARENT = """
import os, signal, subprocess, sys, time
from service_parts.children import die_with
child = subprocess.Popen(["sleep", "60"], preexec_fn=die_with(os.getpid(), signal.SIGTERM))
print(child.pid, flush=True)
time.sleep(60)
"""


def runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert runs(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    # Every process but this one stands for a parent that has ended.
    child = subprocess.Popen(["sleep", "60"], preexec_fn=die_with(os.getppid(), signal.SIGTERM))  # noqa: PLW1509
    assert child.wait(30) == 1


async def started(program: str) -> asyncio.subprocess.Process:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    return child


async def test_a_child_is_asked_to_end_and_then_killed() -> None:
    obedient, stubborn = await started(SLEEPING), await started(STUBBORN)
    assert await end_child(obedient, 30)
    assert obedient.returncode == -signal.SIGTERM
    assert await end_child(obedient, 30)
    assert not await end_child(stubborn, 0.05)
    assert stubborn.returncode == -signal.SIGKILL


async def test_a_child_is_killed_if_nothing_waits_for_it_any_more() -> None:
    stubborn = await started(STUBBORN)
    ending = asyncio.create_task(end_child(stubborn, 60))
    await asyncio.sleep(0.01)
    ending.cancel()
    await asyncio.wait({ending})
    assert await stubborn.wait() == -signal.SIGKILL
