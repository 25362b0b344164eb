"""What a backup copies of a partition, what it takes from the journal, and what a backup folder keeps. Pure.

Laws: each record that was stored before the journal was read is in a segment that is looked at afterwards, or
in the journal. So segments and then the journal, up to the first gap, have every such record. Nothing is
removed from a backup folder that a backup needs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from amqp_streams.storage.formats.manifest import Key, Manifest, Piece


class Seen(NamedTuple):
    """A segment of the node, as it was seen: its size and its `Files.stamp`."""

    base: int
    size: int
    stamp: tuple[int, int]


class Taken(NamedTuple):
    """Records `first` to before `after` of the journal's entry number `entry`."""

    entry: int
    first: int
    after: int


def looked(seen: Sequence[Seen], start: int) -> list[Seen]:
    """The segments that count, in order. `start`: the partition's start at the last checkpoint.

    An empty segment at the end may have been created for records that are in the segment before it only, or
    nowhere yet. Segments before `start` are being removed by retention.
    """
    row = list(seen)
    while len(row) > 1 and row[1].base <= start:
        del row[0]
    while len(row) > 1 and not row[-1].size:
        del row[-1]
    return row


def continued(entries: Sequence[tuple[int, int]], at: int) -> list[Taken]:
    """What to take from journal entries (first, after) for the records from number `at` on, without a gap.

    Records after a gap were written while the journal was read: they are later than the backup.
    """
    taken: list[Taken] = []
    # Of entries that begin together, the longest: the shorter one is the earlier attempt of a commit.
    for number in sorted(range(len(entries)), key=lambda index: (entries[index][0], -entries[index][1])):
        first, after = entries[number]
        if first <= at < after:
            taken.append(Taken(number, at, after))
            at = after
    return taken


def is_same(seen: Seen, known: Piece | None, stored_bytes: int) -> bool:
    """Whether the folder has this segment, and neither was written since. `stored_bytes`: of its file."""
    return (
        known is not None
        and known.stamp == (*seen.stamp, seen.size)
        and known.bytes == seen.size <= stored_bytes
    )


def latest(manifests: Iterable[Manifest]) -> dict[tuple[Key, int], Piece]:
    """By partition and base, what the folder has of a segment: its highest version, and its most bytes."""
    found: dict[tuple[Key, int], Piece] = {}
    for manifest in sorted(manifests, key=lambda each: each.ended_ms):
        for key, piece in manifest.pieces():
            known = found.get((key, piece.base))
            # The latest manifest of equals: it has the latest stamp.
            if known is None or (piece.version, piece.bytes) >= (known.version, known.bytes):
                found[key, piece.base] = piece
    return found


def needed(manifests: Iterable[Manifest]) -> Mapping[tuple[Key, int, int], int]:
    """By partition, base and version of each file that a backup needs: how many of its bytes."""
    most: dict[tuple[Key, int, int], int] = {}
    for manifest in manifests:
        for key, piece in manifest.pieces():
            name = key, piece.base, piece.version
            most[name] = max(piece.bytes, most.get(name, 0))
    return most


def outdated(manifests: Iterable[Manifest], keep: int | None) -> list[Manifest]:
    """The backups to remove so that `keep` automatic ones stay, the oldest first; None: all stay."""
    automatic = sorted(
        (each for each in manifests if each.automatic), key=lambda each: (each.began_ms, each.name)
    )
    if keep is None:
        return []
    # A backup with damage may be the first of many: the last one without damage is never removed.
    whole = [each for each in automatic if not each.damage]
    spared = whole[-1] if whole else None
    return [each for each in automatic[: max(0, len(automatic) - keep)] if each is not spared]
