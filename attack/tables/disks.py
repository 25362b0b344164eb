"""A node whose disk is slow, or does not answer: each sync waits as a file says.

A small library in front of the C library does it: the code of the node and the file system are the real ones.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import proton

from attack.peer import Peer, from_earliest, send
from attack.report import Attack, Place, Table, expect
from attack.room import Room, node_room, wait_for

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char mode(void) {
    char found = 'o';
    int fd = open(getenv("DISK_MODE"), O_RDONLY);
    if (fd >= 0) { if (read(fd, &found, 1) != 1) found = 'o'; close(fd); }
    return found;
}

static void delay(void) {
    if (mode() == 's') usleep(300000);
    while (mode() == 'h') usleep(20000);
}

int fdatasync(int fd) {
    delay();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    delay();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""
WORKS, SLOW, HANGS = "o", "s", "h"
EVENTS: Final = 50


class Disk:
    """The file that says how the disk behaves."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._mode: Final = folder / "disk-mode"
        self._library: Final = folder / "disk.so"
        source = folder / "disk.c"
        source.write_text(_SOURCE)
        command = ["cc", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self.behaves(WORKS)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process with this disk."""
        return {"LD_PRELOAD": str(self._library), "DISK_MODE": str(self._mode)}

    def behaves(self, mode: str) -> None:
        new = self._mode.with_suffix(".new")
        new.write_text(mode)
        new.replace(self._mode)  # never empty


@contextmanager
def _room(room: Room, name: str) -> Iterator[tuple[Room, Disk]]:
    folder = room.folder / name
    disk = Disk(folder)
    patient = {"idle_timeout_ms": 120_000}  # clients that wait for the disk send no heartbeats
    with node_room(folder, is_small=True, beside=False, environment=disk.environment, **patient) as own:
        try:
            yield own, disk
        finally:
            disk.behaves(WORKS)


def _sent(peer: Peer, link: Any, count: int, prefix: str) -> list[Any]:
    """Unsettled events; those that found credit."""
    peer.until(lambda: link.credit > 0, "no credit")
    body = proton.Message(body=b"x" * 1000).encode()
    found = []
    for number in range(min(count, link.credit)):
        found.append(send(link, body, f"{prefix}{number}", settled=False))
        peer.pump(0.0)
    return found


def _are_accepted(deliveries: list[Any]) -> bool:
    return all(each.remote_state == proton.Delivery.ACCEPTED for each in deliveries)


def _slow(room: Room) -> Iterator[str]:
    """Each sync takes 0.3 s: events are accepted late, and nothing is refused."""
    with _room(room, "slow-disk") as (own, disk), own.peer() as peer:
        link = peer.sender("m-log")
        disk.behaves(SLOW)
        began = time.monotonic()
        deliveries = _sent(peer, link, EVENTS, "s")
        peer.until(lambda: _are_accepted(deliveries), "events are not accepted")
        took = time.monotonic() - began
        yield f"{len(deliveries)} events while a sync takes 0.3 s: accepted after {took:.1f} s"
        expect(not peer.is_gone, "the connection is cut")


def _hangs(room: Room) -> Iterator[str]:
    """No sync ends: nothing is accepted, readers read on, probes say so; then all is accepted."""
    with _room(room, "silent-disk") as (own, disk), own.peer() as peer:
        link = peer.sender("m-log")
        stored = _sent(peer, link, 5, "b")
        peer.until(lambda: _are_accepted(stored), "events are not accepted")
        disk.behaves(HANGS)
        waiting = _sent(peer, link, EVENTS, "h")
        wait_for(lambda: own.get("/readyz")[0] == 503, "/readyz says that the disk does not answer")
        with own.peer() as other:
            reader = other.receiver("m-log", credit=5, filters=from_earliest())
            other.until(lambda: reader.current is not None, "a reader gets no stored event")
        peer.pump(0.1)
        accepted = [each for each in waiting if each.remote_state == proton.Delivery.ACCEPTED]
        expect(not accepted, f"{len(accepted)} events are accepted that are not on the disk")
        expect(own.get("/metrics")[0] == 200, "/metrics does not answer")
        yield f"{len(waiting)} events wait, /readyz is 503, and a reader gets what is stored"
        disk.behaves(WORKS)
        peer.until(lambda: _are_accepted(waiting), "the events are not accepted after the disk is back")
        wait_for(lambda: own.get("/readyz")[0] == 200, "/readyz is 200 again")


def _attack(name: str, run: Any, *covers: str) -> Attack:
    return Attack(
        name,
        Table.REMOTES,
        Place.NODE,
        frozenset(covers),
        "the writer's queue",
        run,
        is_judged=False,
        is_long=True,
    )


ATTACKS: Final = (
    _attack("the disk is slow", _slow, "disk: slow"),
    _attack("the disk does not answer", _hangs, "disk: silent"),
)
