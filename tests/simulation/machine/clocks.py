"""The clocks that the node reads, controlled by the simulation.

`perf_counter` counts steps and not seconds: each reading costs some, and in runs that measure, so does each
call of a function. So the limits of a turn take effect at the same point in each run of a seed.
"""

import cProfile
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

from tests.simulation.machine.schedule import MS, Schedule

WALL_MS = 1_700_000_000_000


class Wall:
    """The clock of a machine: it may jump, and stand still."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._offset_ms = WALL_MS
        self._frozen_ms: int | None = None
        self.jumped = False
        """Whether the clock was wrong at any time."""

    def now_ms(self) -> int:
        """Ms since the epoch, as the machine believes."""
        return self._schedule.now_ms + self._offset_ms if self._frozen_ms is None else self._frozen_ms

    def jump(self, ms: int) -> None:
        """Set the clock to another time."""
        self.jumped = True
        self._offset_ms += ms
        if self._frozen_ms is not None:
            self._frozen_ms += ms

    def freeze(self) -> None:
        """The clock stands still until `thaw`."""
        self.jumped = True
        self._frozen_ms = self.now_ms()

    def thaw(self) -> None:
        """Let the clock continue, from the true time."""
        self._frozen_ms = None


class Steps:
    """How much the node has worked, in steps.

    A step is one call of a function where calls are counted, and otherwise a part of one reading of the
    clock. A second has a million steps.
    """

    def __init__(self, *, counted: bool, steps_a_reading: int) -> None:
        self._counter = count()
        self._each = steps_a_reading
        self._readings = 0
        self.profile = cProfile.Profile(self._counter.__next__, 1.0, True, True) if counted else None

    @property
    def counted(self) -> bool:
        """Calls are counted."""
        return self.profile is not None

    @property
    def now(self) -> int:
        """Steps so far. A profiler reads its timer at the begin and at the end of each call."""
        made = int(self._counter.__reduce__()[1][0]) // 2  # the count, without counting
        return made + self._readings * self._each

    def perf_counter(self) -> float:
        """In place of `time.perf_counter`."""
        self._readings += 1
        return self.now / 1_000_000

    def run(self, call: Callable[[], object]) -> int:
        """Call, and return the steps of that."""
        before = self.now
        if self.profile is None:
            call()
        else:
            self.profile.enable()
            try:
                call()
            finally:
                self.profile.disable()
        return self.now - before


class _Time:
    """In place of the module `time` where the node reads wall and monotonic clock."""

    def __init__(self, schedule: Schedule, wall: Callable[[], int]) -> None:
        self._schedule = schedule
        self._wall = wall

    def time_ns(self) -> int:
        return self._wall() * 1_000_000

    def monotonic_ns(self) -> int:
        return self._schedule.now_us * 1000

    def monotonic(self) -> float:
        return self._schedule.now_us / (1000 * MS)


class _NoGarbage:
    """In place of a node's rule for garbage: objects of earlier runs must not stay in memory."""

    def __init__(self, loop: object) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def clocks(schedule: Schedule, wall: Callable[[], int], steps: Steps, random: Random) -> Iterator[None]:
    """The node's modules read these clocks and draw these random numbers, until this ends."""
    run, service = import_module("amqp_streams.server.run"), import_module("amqp_streams.server.service")
    patches: list[Any] = [
        patch.object(service, "time", _Time(schedule, wall)),
        patch.object(service.uuid, "uuid4", lambda: UUID(int=random.getrandbits(128))),
        patch.object(run, "Garbage", _NoGarbage),
        patch.object(os, "urandom", random.randbytes),
    ]
    patches += [
        patch.object(module, "perf_counter", steps.perf_counter)
        for name, module in sorted(sys.modules.items())
        if name.startswith("amqp_streams.") and getattr(module, "perf_counter", None) is time.perf_counter
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
