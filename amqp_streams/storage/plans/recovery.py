"""What a segment and the journal hold after a crash, and the plan to recover it.

Pure: reads only, by a function.

Laws: a torn tail loses only records that were not accepted. Damage with whole batches after it is corruption:
it is reported, and the gap in the numbers fences it from reading. After a second crash, the same plan
results.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from amqp_streams.storage.formats import producers, record
from amqp_streams.storage.formats.index import Index
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.formats.record import HEAD_BYTES, MAGIC, Batch

_BLOCK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole batches back to back in a segment: bytes position..until, records base..end."""

    position: int
    until: int
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in the middle that are not a batch.

    Records first..after are missing (equal: only stray bytes).
    """

    position: int
    until: int
    first: int
    after: int


@dataclass(slots=True, eq=False)
class Scan:
    """The content of a segment.

    Bytes after the last stretch are a torn tail. `producers` includes those known before.
    """

    size: int
    stretches: list[Stretch] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    index: Index = field(default_factory=Index)
    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0
    producers: Table = field(default_factory=dict)

    @property
    def until(self) -> int:
        """The end of the last whole batch."""
        return self.stretches[-1].until if self.stretches else 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Bytes of the segment to keep."""

    position: int
    until: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Records first..after to write from the journal."""

    first: int
    after: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The new content of the active segment, in order.

    `rewrite`: as a new file, not by cutting and appending.

    `lost` are ranges (first, after) of stored records that are in no file now. `end` is the next record's
    number.
    """

    pieces: tuple[Keep | Replay, ...]
    rewrite: bool
    lost: tuple[tuple[int, int], ...]
    end: int


def with_records(bases: Sequence[int], size: Callable[[int], int], *, start: int) -> list[int]:
    """Return `bases` without the last segments that are empty: created for records that were never written.

    A commit creates all its segments before it writes the first one. `size` returns the bytes of a segment.
    Only the active segment at `start`, the number of the partition's first record, may be empty.
    """
    count = len(bases)
    while (count > 1 or (count and bases[0] > start)) and not size(bases[count - 1]):
        count -= 1
    return list(bases[:count])


def scan(
    read: Callable[[int, int], bytes], size: int, *, seed: int, into: Scan, expected: int, position: int = 0
) -> Scan:
    """Scan a segment's batches from `position` on, where record `expected` begins, and add them to `into`.

    `read(count, position)` returns the segment's bytes.
    """
    walk = _walk(read, size, seed=seed, position=position, expected=expected, last_ms=into.last_timestamp_ms)
    for found, head, last_ms, entries in walk:
        gap = found != position or head.base != expected
        if gap:
            into.damage.append(Damage(position, found, expected, head.base))
        if gap or not into.stretches:
            into.stretches.append(Stretch(found, found + head.length, head.base, head.end))
        else:
            last = into.stretches[-1]
            into.stretches[-1] = Stretch(last.position, found + head.length, last.base, head.end)
        if not into.index.positions:
            into.first_timestamp_ms = head.first_timestamp_ms
        into.index.add(head.base, head.first_timestamp_ms, found)
        into.last_timestamp_ms = last_ms
        if entries:
            producers.apply(into.producers, entries, last_ms)
        position, expected = found + head.length, head.end
    return into


def batches_in(buffer: bytes, *, seed: int, base_position: int) -> tuple[list[Batch], list[Damage]]:
    """Decode a stretch of a segment that begins with a batch.

    Other bytes are damage (first and after unknown: 0).
    """
    batches: list[Batch] = []
    damage: list[Damage] = []
    position = 0
    while position < len(buffer):
        head = record.head_at(buffer, position)
        batch = record.decode(buffer, position, head, seed) if head else None
        if batch is None:
            found = _resync(buffer, position + 1, seed)
            damage.append(Damage(base_position + position, base_position + found, 0, 0))
            position = found
        else:
            batches.append(batch)
            position += batch.head.length
    return batches, damage


def plan(
    stretches: Sequence[Stretch], journal: Sequence[tuple[int, int]], *, base: int, end_at_least: int
) -> Plan:
    """Combine the segment's records with the record ranges (first, after) of the journal.

    `base` is the number of the segment's first record; `end_at_least` is the number known to have been
    reached. Records in both are taken from the segment. If the journal holds everything from the first gap
    on, the segment is cut there: bytes after such a gap come from a write that was never synced.
    """
    covered = _merged(journal)
    pieces: list[Keep | Replay] = []
    lost: list[tuple[int, int]] = []
    expected, cut = base, False
    for stretch in stretches:
        if stretch.base > expected:
            recovered = _cover(covered, expected, stretch.base)
            if recovered and _cover(covered, expected, stretches[-1].end) == [
                Replay(expected, stretches[-1].end)
            ]:
                cut = True
                break
            pieces += recovered
            lost += _missing(recovered, expected, stretch.base)
        pieces.append(Keep(stretch.position, stretch.until))
        expected = stretch.end
    reached = max([expected, end_at_least, *(after for _, after in covered)])
    tail = _cover(covered, expected, reached)
    pieces += tail
    lost += _missing(tail, expected, reached)
    last_keep = max((number for number, piece in enumerate(pieces) if isinstance(piece, Keep)), default=-1)
    rewrite = not cut and any(isinstance(piece, Replay) for piece in pieces[: last_keep + 1])
    return Plan(tuple(pieces), rewrite, tuple(lost), reached)


def _walk(
    read: Callable[[int, int], bytes], size: int, *, seed: int, position: int, expected: int, last_ms: int
) -> Iterator[tuple[int, record.Head, int, producers.Entries]]:
    """Position, head, last timestamp and producers of each whole batch, in number order.

    Skips stray bytes.
    """
    block, start = b"", position
    while position < size:
        if position + HEAD_BYTES > start + len(block):
            block, start = read(min(_BLOCK_BYTES, size - position), position), position
        head = record.head_at(block, position - start)
        # The batch continues after this block: read it whole.
        if head and head.length > start + len(block) - position and position + head.length <= size:
            block, start = read(min(max(_BLOCK_BYTES, head.length), size - position), position), position
        if (
            head
            # A batch that repeats numbers or times is not the next one, even if its CRC matches: it may be
            # a stale copy.
            and head.base >= expected
            and head.first_timestamp_ms >= last_ms
            and record.is_whole(block, position - start, head, seed)
        ):
            last_ms = record.last_timestamp_ms(block, position - start, head)
            yield position, head, last_ms, record.entries_at(block, position - start, head)
            position, expected = position + head.length, head.end
            continue
        found = block.find(MAGIC, position - start + 1)
        # The magic may span two blocks: the last three bytes of this one are searched again with the next.
        position = start + found if found >= 0 else max(position + 1, start + len(block) - 3)
        if position + len(MAGIC) > size:
            return


def _resync(buffer: bytes, position: int, seed: int) -> int:
    while (position := buffer.find(MAGIC, position)) >= 0:
        head = record.head_at(buffer, position)
        if head and record.is_whole(buffer, position, head, seed):
            return position
        position += 1
    return len(buffer)


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, after in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(after, merged[-1][1]))
        else:
            merged.append((first, after))
    return merged


def _cover(covered: Sequence[tuple[int, int]], first: int, after: int) -> list[Replay]:
    """The parts of first..after that the ranges cover."""
    return [
        Replay(max(first, low), min(after, high)) for low, high in covered if low < after and high > first
    ]


def _missing(pieces: Sequence[Replay], first: int, after: int) -> list[tuple[int, int]]:
    """The parts of first..after that no piece covers."""
    missing: list[tuple[int, int]] = []
    for piece in pieces:
        if piece.first > first:
            missing.append((first, piece.first))
        first = piece.after
    return [*missing, (first, after)] if first < after else missing
