"""Processes and the machine: CPU time and memory of brokers, and other load."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.join(HERE, "bin")
HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
NCPU = os.cpu_count() or 1

Process = subprocess.Popen[bytes]


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def read_stat(pid: int | str) -> tuple[int, float, int] | None:
    """(parent pid, CPU seconds, resident bytes) of one process, or None."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / HZ, int(fields[21]) * PAGE


def process_tree(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(name)
            if stat:
                parents.setdefault(stat[0], []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        if read_stat(pid):
            found.append(pid)
            todo.extend(parents.get(pid, []))
    return found


def cpu_and_rss(pids: Sequence[int]) -> tuple[float, int]:
    stats = [s for s in map(read_stat, pids) if s]
    return sum(s[1] for s in stats), sum(s[2] for s in stats)


def peak_rss(pids: Sequence[int]) -> int:
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status") as f:
                found = re.search(r"VmHWM:\s+(\d+)", f.read())
        except OSError:
            continue
        if found is not None:
            total += int(found.group(1)) * 1024
    return total


def machine_busy() -> float:
    """CPU seconds that all processes together have used since boot."""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:]]
    return (v[0] + v[1] + v[2] + v[5] + v[6]) / HZ


def wait_quiet(limit: float, below: float = 0.15, window: float = 0.4) -> float:
    """Wait until the machine is nearly idle, at most limit seconds."""
    end = time.monotonic() + limit
    while True:
        b, t = machine_busy(), time.monotonic()
        time.sleep(window)
        share = (machine_busy() - b) / (time.monotonic() - t) / NCPU
        if share < below or time.monotonic() > end:
            return share


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def end_process(process: Process, patience: float = 30) -> None:
    """Ask our own process to end, then make it; never anyone else's."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            for pid in process_tree(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
