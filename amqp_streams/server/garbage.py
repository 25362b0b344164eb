"""[io] Python's search for garbage, in short pauses.

The objects of a node refer to each other without circles, so their memory is free as soon as they end
(`tests/amqp_streams/server/test_garbage.py`). Only garbage of other packages needs the search. Python's own
rule examines all objects again and again: 80 to 140 ms for 10,000 links. Here, what survives two searches is
examined only once in `FULL_S`.
"""

import asyncio
import gc
from collections.abc import Mapping
from typing import Final

FULL_S: Final = 600.0
"""How often all objects are examined, in seconds."""
NEW_OBJECTS: Final = 700
"""New objects after which these are examined. After ten times, those of all ten are, in a millisecond."""
_NEVER: Final = 1 << 30


class Garbage:
    """The rule of a running node. The process has one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._before: Final = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, with all that was made at the start."""
        gc.set_threshold(NEW_OBJECTS, 10, _NEVER)
        gc.callbacks.append(self._searched)
        gc.collect()
        gc.freeze()
        self._timer = self._loop.call_later(FULL_S, self._full)

    def stop(self) -> None:
        """Return to the rule that was in force before."""
        if self._timer is not None:
            self._timer.cancel()
            gc.callbacks.remove(self._searched)
            gc.set_threshold(*self._before)
            self._timer = None

    def _full(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._timer = self._loop.call_later(FULL_S, self._full)

    def _searched(self, phase: str, facts: Mapping[str, int]) -> None:
        """Called by Python before and after each search."""
        if phase == "stop" and facts["generation"] == 1:
            gc.freeze()
