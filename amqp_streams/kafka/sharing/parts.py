"""The parts in which states are written: each is one transaction. Pure.

Law: the parts have all changes once, in their order. What must be the last record to be durable is in the
last part.
"""

from collections.abc import Iterator, Mapping
from typing import Final

RECORDS_MAX: Final = 10_000
"""The most records of one transaction."""
BYTES_MAX: Final = 4 << 20
"""The most bytes of keys and values of one transaction, unless one record alone has more."""


def parts(
    changes: Mapping[str, bytes | None], *, records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[dict[str, bytes | None]]:
    """The changes in parts within the bounds."""
    part, size = dict[str, bytes | None](), 0
    for key, value in changes.items():
        more = len(key.encode()) + len(value or b"")
        if part and (len(part) >= records_max or size + more > bytes_max):
            yield part
            part, size = {}, 0
        part[key] = value
        size += more
    if part:
        yield part
