"""The states of all buckets in memory, as they are read from the state topic. Pure.

Laws: the values of a bucket are those of the records in front of `position`. The bounds hold at each moment:
a bucket that exceeds one is *full*, and its values are not kept until it is read again from its beginning. So
an abuser of one bucket costs that bucket only, unless all buckets together exceed their bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from amqp_streams.storage.ports import STATE_KEYS_MAX

KEYS_MAX: Final = STATE_KEYS_MAX
"""The most keys of a bucket: a home writes no more."""
BYTES_MAX: Final = 64 << 20
"""The most bytes of keys and values of a bucket."""
ALL_BYTES_MAX: Final = 256 << 20
"""The most bytes of all buckets together."""
KEY_OVERHEAD: Final = 200
"""What Python needs for a key and a value besides their bytes, about."""

Changes: TypeAlias = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, eq=False)
class FollowedBucket:
    """One bucket. `size`: the bytes in memory, about.

    `full`: why its values are not kept; empty: they are.
    """

    position: int = 0
    size: int = 0
    full: str = ""
    values: dict[str, bytes] = field(default_factory=dict)

    def clear(self) -> None:
        """Begin again: the partition is read from its beginning."""
        self.position = self.size = 0
        self.full = ""
        # A new dict: the old one keeps its memory.
        self.values = {}


class FollowedStates:
    """The buckets by number."""

    def __init__(
        self,
        buckets: int,
        *,
        keys_max: int = KEYS_MAX,
        bytes_max: int = BYTES_MAX,
        all_bytes_max: int = ALL_BYTES_MAX,
    ) -> None:
        self.buckets: Final = [FollowedBucket() for _ in range(buckets)]
        self.size = 0
        self._keys_max: Final = keys_max
        self._bytes_max: Final = bytes_max
        self._all_bytes_max: Final = all_bytes_max

    def apply(self, number: int, changes: Changes, position: int) -> None:
        """Take in records of a bucket, in their order. `position`: the number after the last of them."""
        bucket = self.buckets[number]
        if not bucket.full:
            before = bucket.size
            for key, value in changes:
                self._set(bucket, key, value)
            self.size += bucket.size - before
            self._bound(number)
        bucket.position = position

    def clear(self, number: int) -> None:
        """See `FollowedBucket.clear`."""
        self.size -= self.buckets[number].size
        self.buckets[number].clear()

    def _set(self, bucket: FollowedBucket, key: str, value: bytes | None) -> None:
        old = bucket.values.pop(key, None)
        if old is not None:
            bucket.size -= len(key) + len(old) + KEY_OVERHEAD
        if value is not None:
            bucket.values[key] = value
            bucket.size += len(key) + len(value) + KEY_OVERHEAD

    def _bound(self, number: int) -> None:
        bucket = self.buckets[number]
        keys = len(bucket.values)
        if keys > self._keys_max:
            why = f"it has {keys} keys (at most {self._keys_max})"
        elif bucket.size > self._bytes_max:
            why = f"it needs {bucket.size} bytes (at most {self._bytes_max})"
        elif self.size > self._all_bytes_max:
            why = f"all buckets together need {self.size} bytes (at most {self._all_bytes_max})"
        else:
            return
        position = bucket.position
        self.clear(number)
        bucket.full, bucket.position = why, position
