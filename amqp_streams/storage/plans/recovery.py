"""What a segment and the journal still hold after a crash, and what to do about it. Pure: reads through a function, changes nothing.

Laws: a torn tail loses only records that were never accepted; damage with whole batches behind it is corruption: reported, fenced by
the jump in the numbers, and never bridged silently; doing it all again after a second crash gives the same.
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
    """Bytes in the middle that are not a batch; records first..after are not there (equal: only nonsense bytes)."""

    position: int
    until: int
    first: int
    after: int


@dataclass(slots=True, eq=False)
class Scan:
    """What a segment holds. Bytes behind the last stretch are a torn tail. `producers`: how far they have come, from what was known on."""

    size: int
    stretches: list[Stretch] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    index: Index = field(default_factory=Index)
    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0
    producers: Table = field(default_factory=dict)

    @property
    def until(self) -> int:
        """Where the last whole batch ends."""
        return self.stretches[-1].until if self.stretches else 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Bytes of the segment that stay."""

    position: int
    until: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Records first..after, to be written from the journal."""

    first: int
    after: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What the active segment is to become: the pieces in order. `rewrite`: not by cutting and appending, but as a new file.

    `lost` are ranges (first, after) of records that were there and are nowhere now. `end` is the number of the next record.
    """

    pieces: tuple[Keep | Replay, ...]
    rewrite: bool
    lost: tuple[tuple[int, int], ...]
    end: int


def scan(read: Callable[[int, int], bytes], size: int, *, seed: int, into: Scan, expected: int, position: int = 0) -> Scan:
    """Walk a segment's batches from `position` on, where record `expected` begins, adding to `into` what is found before it.

    `read(count, position)` gives the segment's bytes.
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
    """Decode a stretch of a segment that begins on a batch; what is not a batch comes as damage (first and after unknown: 0)."""
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


def plan(stretches: Sequence[Stretch], journal: Sequence[tuple[int, int]], *, base: int, end_at_least: int) -> Plan:
    """Join what the segment holds with the record ranges (first, after) the journal holds.

    `base` is the number that the segment's first record should have; `end_at_least` the number known to have been reached earlier.
    Records present in both are taken from the segment. When the journal holds everything from the first gap on, the segment is cut
    there, since bytes behind a gap are then a write that was never synced.
    """
    covered = _merged(journal)
    pieces: list[Keep | Replay] = []
    lost: list[tuple[int, int]] = []
    expected, cut = base, False
    for stretch in stretches:
        if stretch.base > expected:
            healed = _cover(covered, expected, stretch.base)
            if healed and _cover(covered, expected, stretches[-1].end) == [Replay(expected, stretches[-1].end)]:
                cut = True
                break
            pieces += healed
            lost += _missing(healed, expected, stretch.base)
        pieces.append(Keep(stretch.position, stretch.until))
        expected = stretch.end
    reached = max([expected, end_at_least, *(after for _, after in covered)])
    tail = _cover(covered, expected, reached)
    pieces += tail
    lost += _missing(tail, expected, reached)
    last_keep = max((place for place, piece in enumerate(pieces) if isinstance(piece, Keep)), default=-1)
    rewrite = not cut and any(isinstance(piece, Replay) for piece in pieces[: last_keep + 1])
    return Plan(tuple(pieces), rewrite, tuple(lost), reached)


def _walk(
    read: Callable[[int, int], bytes], size: int, *, seed: int, position: int, expected: int, last_ms: int
) -> Iterator[tuple[int, record.Head, int, producers.Entries]]:
    """Whole batches in the order of their numbers: position, head, last timestamp, producers. Nonsense between them is stepped over."""
    block, start = b"", position
    while position < size:
        if position + HEAD_BYTES > start + len(block):
            block, start = read(min(_BLOCK_BYTES, size - position), position), position
        head = record.head_at(block, position - start)
        if head and head.length > start + len(block) - position and position + head.length <= size:
            block, start = read(min(max(_BLOCK_BYTES, head.length), size - position), position), position
        if head and head.base >= expected and head.first_timestamp_ms >= last_ms and record.is_whole(block, position - start, head, seed):
            last_ms = record.last_timestamp_ms(block, position - start, head)
            yield position, head, last_ms, record.entries_at(block, position - start, head)
            position, expected = position + head.length, head.end
            continue
        found = block.find(MAGIC, position - start + 1)
        # The magic may lie across the end of the block: its first three bytes are looked at again with the next one.
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
    """The parts of first..after that are covered."""
    return [Replay(max(first, low), min(after, high)) for low, high in covered if low < after and high > first]


def _missing(pieces: Sequence[Replay], first: int, after: int) -> list[tuple[int, int]]:
    """The parts of first..after that are in no piece."""
    missing: list[tuple[int, int]] = []
    for piece in pieces:
        if piece.first > first:
            missing.append((first, piece.first))
        first = piece.after
    return [*missing, (first, after)] if first < after else missing
