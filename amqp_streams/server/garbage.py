"""[io] Python's search for garbage, in short pauses.

The objects of a node refer to each other without circles, so their memory is free as soon as they end
(`tests/amqp_streams/server/test_garbage.py`). Only garbage of other packages needs the search. Python's own
rule examines all objects again and again: 80 to 140 ms for 10,000 links. Here, what survives two searches is
examined once in `FULL_S`, and when there are `GROWTH` times as many objects as the last time.

Law: of the memory, garbage takes at most about half.
"""

import asyncio
import gc
from collections.abc import Mapping
from typing import ClassVar, Final

FULL_S: Final = 600.0
"""How often all objects are examined, in seconds."""
GROWTH: Final = 2.0
"""All objects are also examined when there are this many times as many as the last examination left. A node
that gets more and more links examines each object twice on average, and not again at each search.
"""
CHECK_S: Final = 1.0
"""How often the growth is looked at, in seconds."""
NEW_OBJECTS: Final = 700
"""New objects after which these are examined. After ten times, those of all ten are, in a millisecond."""
_NEVER: Final = 1 << 30
_STEPS: Final = 10
"""Counting takes 7 ms for a million objects: it is done at most once for a tenth of the allowed growth."""


class Garbage:
    """The rule of a running node. In a process with several nodes it is in force until the last one stops."""

    _in_force: ClassVar[set["Garbage"]] = set()
    _before: ClassVar[tuple[int, int, int]]
    """Python's own thresholds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._timer: asyncio.TimerHandle | None = None
        self._full_at_s = 0.0
        self._left = 0
        """How many objects the last examination of all left."""
        self._new = 0
        """By how much the number of objects has grown since they were counted, at most."""
        self._room = 0.0
        """By how much it may grow before they are counted again."""

    def start(self) -> None:
        """Begin, with all that was made at the start."""
        if not self._in_force:
            Garbage._before = gc.get_threshold()
            gc.set_threshold(NEW_OBJECTS, 10, _NEVER)
        self._in_force.add(self)
        gc.callbacks.append(self._searched)
        self._examine_all()
        self._timer = self._loop.call_later(CHECK_S, self._check)

    def stop(self) -> None:
        """Return to Python's own rule, which also examines what this one has set aside."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        gc.callbacks.remove(self._searched)
        self._in_force.remove(self)
        if not self._in_force:
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        if self._loop.time() >= self._full_at_s or self._has_grown():
            self._examine_all()

    def _has_grown(self) -> bool:
        if self._new < self._room:
            return False
        room = GROWTH * self._left - gc.get_freeze_count()
        # Most new objects may have ended meanwhile, so the growth may be small.
        self._new, self._room = 0, max(room, (GROWTH - 1) * self._left / _STEPS)
        return room <= 0

    def _examine_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._full_at_s = self._loop.time() + FULL_S
        self._left, self._new = gc.get_freeze_count(), 0
        self._room = (GROWTH - 1) * self._left

    def _searched(self, phase: str, facts: Mapping[str, int]) -> None:
        """Called by Python before and after each search, in the thread that made the last object."""
        if phase == "start":
            # Python's counter of new objects less the objects that have ended: the search sets it to 0.
            self._new += gc.get_count()[0]
        elif facts["generation"] == 1:
            gc.freeze()
