"""The limit of open files, in a separate process."""

import subprocess
import sys

_PROGRAM = """
import resource
from service_parts.open_files import raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 900))
raised = [raise_open_files(files) for files in (500, 400, 1 << 16)]
print(*raised, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_as_far_as_the_system_allows_and_never_lowered() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["500", "500", "900", "900", "900"]


_RESERVED = """
import os, threading
from pathlib import Path
from service_parts.open_files import raise_open_files
def room():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("FDSize:")))
before, opened = room(), set(os.listdir("/proc/self/fd"))
limit = raise_open_files(3000)
print(before, limit, room(), opened == set(os.listdir("/proc/self/fd")))
"""


def test_the_table_of_open_files_has_room_before_there_are_threads() -> None:
    """In a process with threads, Linux stops the thread whose file needs a larger table for 7 to 50 ms."""
    done = subprocess.run(
        [sys.executable, "-c", _RESERVED], capture_output=True, text=True, check=True, timeout=60
    )
    before, limit, room, is_clean = done.stdout.split()
    assert int(before) < 3000 <= int(room) <= max(int(limit), 4096)
    assert is_clean == "True"
