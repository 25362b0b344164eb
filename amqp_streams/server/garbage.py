"""[io] Python's search for garbage, in short pauses.

The objects of a node refer to each other without circles, so their memory is free as soon as they end
(`tests/amqp_streams/server/test_garbage.py`). Only garbage of other packages needs the search. Python's own
rule examines all objects again and again: 80 to 140 ms for 10,000 links. Here, what survives two searches is
examined once in `FULL_S`, and when there is `GROWTH` times as much memory in use as after the last time.

Law: of the memory, garbage takes at most about half.
"""

import asyncio
import gc
import sys
from collections.abc import Mapping
from typing import ClassVar, Final

FULL_S: Final = 600.0
"""How often all objects are examined, in seconds."""
GROWTH: Final = 2.0
"""All objects are also examined when Python uses this many times as many blocks of memory as after the last
examination. A node that gets more and more links examines each object twice on average, and not again at each
search.
"""
GROWTH_BLOCKS_MIN: Final = 500_000
"""Less growth waits for `FULL_S`: clients without a login can cause it, and an examination takes 80 to 170
ms. So many blocks are about 60 MB, as much as a node without clients has.
"""
CHECK_S: Final = 1.0
"""How often the growth is looked at, in seconds."""
NEW_OBJECTS: Final = 700
"""New objects after which these are examined. After ten times, those of all ten are, in a millisecond."""
_NEVER: Final = 1 << 30


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
        """How many blocks of memory were in use after the last examination of all."""

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
        # Blocks, because to count the objects means to read them all: 5 to 30 ms for 300,000. The blocks are
        # counted by their pools, in 0.1 ms.
        return sys.getallocatedblocks() >= max(GROWTH * self._left, self._left + GROWTH_BLOCKS_MIN)

    def _examine_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._full_at_s = self._loop.time() + FULL_S
        self._left = sys.getallocatedblocks()

    def _searched(self, phase: str, facts: Mapping[str, int]) -> None:
        """Called by Python before and after each search, in the thread that made the last object."""
        if phase == "stop" and facts["generation"] == 1:
            gc.freeze()
