"""A cache of decoded objects by version. Lists and watches share it in all threads.

Objects are never changed in place, so all readers of a version share one value.
"""

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Final

from knative_gateway.ports import Key

CHARACTERS_MAX: Final = 32 << 20
"""Characters of the cached documents. The objects take several times as much memory."""


class Decoded:
    """A cache that removes the least recently used objects first."""

    def __init__(self, characters_max: int = CHARACTERS_MAX) -> None:
        self._kept: Final[OrderedDict[Key, tuple[int, Mapping[str, object], int]]] = OrderedDict()
        self._characters_max: Final = characters_max
        self._characters = 0
        self._lock: Final = Lock()

    def get(self, key: Key, version: int) -> Mapping[str, object] | None:
        """Return the object in exactly this version; None if it is not cached."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept[0] != version:
                return None
            self._kept.move_to_end(key)
            return kept[1]

    def keep(self, key: Key, version: int, object_: Mapping[str, object], characters: int) -> None:
        """Cache an object, unless a later version is cached. `characters`: the size of its document."""
        with self._lock:
            before = self._kept.get(key)
            if before is not None:
                if before[0] > version:
                    return
                self._characters -= before[2]
            self._kept[key] = version, object_, characters
            self._kept.move_to_end(key)
            self._characters += characters
            while self._characters > self._characters_max:
                _, (_, _, size) = self._kept.popitem(last=False)
                self._characters -= size

    def __len__(self) -> int:
        return len(self._kept)
