"""What a backup takes of a partition, and what a backup folder keeps."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats.manifest import CopiedLog, CopiedPartition, Manifest, Piece, Small, Tail
from amqp_streams.storage.plans.backup import Seen, continued, is_same, latest, looked, needed, outdated

entries = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    max_size=12,
)


@given(entries, st.integers(0, 40))
def test_the_journal_continues_the_segments_up_to_the_first_gap(
    ranges: list[tuple[int, int]], at: int
) -> None:
    taken = continued(ranges, at)
    end = at
    for each in taken:
        first, after = ranges[each.entry]
        assert first <= each.first == end < each.after == after
        end = each.after
    covered = {number for first, after in ranges for number in range(first, after)}
    expected = at
    while expected in covered:
        expected += 1
    assert end == expected


seen = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 0, 10])), min_size=1, max_size=6)


@given(seen, st.integers(0, 30))
def test_segments_that_retention_removes_and_empty_ones_do_not_count(
    rows: list[tuple[int, int]], start: int
) -> None:
    row, base = [], 0
    for count, size in rows:
        row.append(Seen(base, size, (1, 1)))
        base += count
    kept = looked(row, start)
    assert kept
    assert kept == row[row.index(kept[0]) :][: len(kept)]
    # Only what is before the start is left out at the front, and only empty ones at the end.
    assert all(each.base < start for each in row[: row.index(kept[0])])
    assert len(kept) == 1 or kept[-1].size
    assert not any(each.size for each in row[row.index(kept[0]) + len(kept) :])
    assert len(kept) == 1 or kept[1].base > start


def test_a_segment_is_not_read_again_if_nothing_was_written_to_it() -> None:
    known = Piece(0, 1, 100, 5, 9, 7, 0, (11, 12, 100))
    segment = Seen(0, 100, (11, 12))
    assert is_same(segment, known, 100)
    assert is_same(segment, known, 120)
    assert not is_same(segment, known, 99)
    assert not is_same(segment, None, 100)
    assert not is_same(Seen(0, 100, (11, 13)), known, 100)
    assert not is_same(Seen(0, 101, (11, 12)), known, 200)
    # It was not whole when it was copied.
    assert not is_same(segment, known._replace(bytes=90), 100)


def _backup(number: int, *pieces: Piece, automatic: bool = True, damage: tuple[str, ...] = ()) -> Manifest:
    part = CopiedPartition(0, 0, 0, pieces, Tail(0, 0), {})
    log = CopiedLog({"name": "l", "uid": "7", "incarnation": "i"}, (part,))
    small = Small(0, 0)
    return Manifest(f"b{number}", automatic, 1, 1, "1", number, number, (log,), small, small, damage)


def _piece(base: int, version: int, count: int) -> Piece:
    return Piece(base, version, count, count, base + count, 0)


def test_the_latest_version_and_most_bytes_of_a_segment_are_continued() -> None:
    backups = [
        _backup(1, _piece(0, 1, 50)),
        _backup(2, _piece(0, 2, 30), _piece(30, 1, 5)),
        _backup(3, _piece(0, 2, 40)),
    ]
    found = latest(backups)
    assert found[(7, 0), 0] == _piece(0, 2, 40)
    assert found[(7, 0), 30] == _piece(30, 1, 5)
    assert found == latest(reversed(backups))


pieces = st.builds(_piece, st.integers(0, 3), st.integers(1, 2), st.integers(0, 9))
backups = st.lists(st.lists(pieces, max_size=4), max_size=5).map(
    lambda rows: [_backup(number, *row) for number, row in enumerate(rows)]
)


@given(backups)
def test_what_is_needed_is_the_most_that_any_backup_needs(manifests: list[Manifest]) -> None:
    wanted = needed(manifests)
    for manifest in manifests:
        for key, piece in manifest.pieces():
            assert wanted[key, piece.base, piece.version] >= piece.bytes
    total = {
        (key, piece.base, piece.version, piece.bytes) for each in manifests for key, piece in each.pieces()
    }
    assert {(*name, count) for name, count in wanted.items()} <= total


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.integers(1, 5))
def test_outdated_backups_are_the_oldest_automatic_ones(kinds: list[tuple[bool, bool]], keep: int) -> None:
    manifests = [
        _backup(number, automatic=automatic, damage=("lost",) if damaged else ())
        for number, (automatic, damaged) in enumerate(kinds)
    ]
    gone = outdated(manifests, keep)
    assert not outdated(manifests, None)
    assert all(each.automatic for each in gone)
    automatic = [each for each in manifests if each.automatic]
    assert {each.name for each in automatic[-keep:]}.isdisjoint(each.name for each in gone)
    whole = [each for each in automatic if not each.damage]
    # The last one without damage stays, however many with damage follow.
    assert not whole or whole[-1] not in gone
    assert len(gone) >= len(automatic) - keep - 1
    assert outdated([replace(each, automatic=False) for each in manifests], keep) == []
