"""The contents of a segment, and the plan for it."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import record
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Damage, Keep, Plan, Replay, Scan, Stretch
from amqp_streams.storage.ports import Chunk

SEED = 99


def _segment(counts: list[int], base: int = 0, size: int = 30) -> tuple[bytes, list[int]]:
    """Batches of so many records each; and where each begins."""
    data, positions = b"", []
    for count in counts:
        positions.append(len(data))
        data += b"".join(
            record.encode(
                Chunk(base, array("q", [base]) * count, bytes(count), [b"%030d" % base] * count), SEED
            )
        )
        base += count
    return data, positions


def _scan(data: bytes, expected: int = 0) -> Scan:
    return recovery.scan(
        lambda count, position: data[position : position + count],
        len(data),
        seed=SEED,
        into=Scan(len(data)),
        expected=expected,
    )


counts = st.lists(st.integers(1, 4), min_size=1, max_size=8)


def test_segments_at_the_end_without_records_do_not_count() -> None:
    sizes = {0: 100, 10: 50, 20: 0, 30: 0}
    assert recovery.with_records(list(sizes), sizes.__getitem__, start=0) == [0, 10]


def test_only_an_empty_segment_at_the_start_of_the_partition_counts() -> None:
    sizes = {10: 0, 20: 0}
    assert recovery.with_records([10, 20], sizes.__getitem__, start=10) == [10]
    assert recovery.with_records([10, 20], sizes.__getitem__, start=5) == []
    assert recovery.with_records([], sizes.__getitem__, start=5) == []


@given(counts, st.data())
def test_a_torn_tail_loses_only_the_torn_batch(sizes: list[int], data: st.DataObject) -> None:
    segment, positions = _segment(sizes)
    cut = data.draw(st.integers(0, len(segment)))
    scan = _scan(segment[:cut])
    whole = sum(1 for position in [*positions[1:], len(segment)] if position <= cut)
    assert scan.until == [*positions, len(segment)][whole]
    assert scan.stretches == ([Stretch(0, scan.until, 0, sum(sizes[:whole]))] if whole else [])
    assert scan.damage == []


@given(counts, counts, st.data())
def test_damage_with_batches_after_it_is_found_with_its_position_and_offsets(
    before: list[int], behind: list[int], data: st.DataObject
) -> None:
    segment, positions = _segment([*before, 2, *behind])
    position = positions[len(before)]
    until = positions[len(before) + 1]
    broken = bytearray(segment)
    broken[data.draw(st.integers(position, until - 1))] ^= 0x10
    scan = _scan(bytes(broken))
    first = sum(before)
    assert scan.damage == [Damage(position, until, first, first + 2)]
    assert [(stretch.base, stretch.end) for stretch in scan.stretches] == [
        (0, first),
        (first + 2, first + 2 + sum(behind)),
    ]


@given(st.binary(max_size=300), counts)
def test_garbage_before_and_after_hides_nothing(nonsense: bytes, sizes: list[int]) -> None:
    segment, _ = _segment(sizes)
    scan = _scan(nonsense + segment + nonsense)
    assert sum(stretch.end - stretch.base for stretch in scan.stretches) == sum(sizes)
    assert scan.until == len(nonsense) + len(segment)


@given(st.binary(max_size=2000))
def test_garbage_holds_nothing_and_never_raises(data: bytes) -> None:
    assert _scan(data).stretches == []
    assert _scan(record.MAGIC + data).stretches == []


def test_a_message_that_looks_like_a_batch_is_not_one() -> None:
    inner = b"".join(record.encode(Chunk(5, array("q", [0]), b"\0", [b"forged"]), SEED + 1))
    outer = bytearray(b"".join(record.encode(Chunk(0, array("q", [0]), b"\0", [inner]), SEED)))
    outer[13] ^= 1
    assert _scan(bytes(outer)).stretches == []


def test_a_stale_batch_is_not_taken_again() -> None:
    segment, _ = _segment([2, 2])
    old, _ = _segment([2])
    scan = _scan(segment + old)
    assert scan.until == len(segment)
    assert scan.stretches[-1].end == 4


def test_a_scan_may_continue_where_an_index_ends() -> None:
    segment, positions = _segment([3, 3, 3])
    whole = _scan(segment)
    begun = Scan(len(segment))
    begun.stretches.append(Stretch(0, positions[1], 0, 3))
    begun.index.add(0, 0, 0)
    recovery.scan(
        lambda n, at: segment[at : at + n],
        len(segment),
        seed=SEED,
        into=begun,
        expected=3,
        position=positions[1],
    )
    assert begun.stretches == whole.stretches
    assert (begun.index.positions, begun.last_timestamp_ms) == (
        whole.index.positions,
        whole.last_timestamp_ms,
    )


# -- plan


def _plan(stretches: list[Stretch], journal: list[tuple[int, int]], end_at_least: int = 0) -> Plan:
    return recovery.plan(stretches, journal, base=0, end_at_least=end_at_least)


def test_a_whole_segment_stays_as_it_is() -> None:
    assert _plan([Stretch(0, 100, 0, 10)], []) == Plan((Keep(0, 100),), False, (), 10)


def test_records_the_segment_has_are_not_replayed() -> None:
    assert _plan([Stretch(0, 100, 0, 10)], [(0, 4), (4, 10)]) == Plan((Keep(0, 100),), False, (), 10)


def test_records_that_only_the_journal_has_are_appended_from_any_record() -> None:
    assert _plan([Stretch(0, 100, 0, 10)], [(5, 12), (12, 20)]) == Plan(
        (Keep(0, 100), Replay(10, 20)), False, (), 20
    )


def test_a_hole_before_unsynced_bytes_is_cut_and_replayed() -> None:
    torn = [Stretch(0, 100, 0, 10), Stretch(150, 200, 15, 20)]
    assert _plan(torn, [(8, 25)]) == Plan((Keep(0, 100), Replay(10, 25)), False, (), 25)


def test_a_hole_before_records_the_journal_does_not_have_is_filled_in_a_new_file() -> None:
    torn = [Stretch(0, 100, 0, 10), Stretch(150, 200, 15, 20)]
    assert _plan(torn, [(10, 15)]) == Plan((Keep(0, 100), Replay(10, 15), Keep(150, 200)), True, (), 20)


def test_a_hole_that_cannot_be_filled_is_lost_and_stays_a_hole() -> None:
    torn = [Stretch(0, 100, 0, 10), Stretch(150, 200, 15, 20)]
    assert _plan(torn, []) == Plan((Keep(0, 100), Keep(150, 200)), False, ((10, 15),), 20)


def test_a_gap_between_segment_and_journal_is_lost() -> None:
    assert _plan([Stretch(0, 100, 0, 10)], [(12, 20)]) == Plan(
        (Keep(0, 100), Replay(12, 20)), False, ((10, 12),), 20
    )


def test_numbers_known_to_have_been_reached_are_not_given_out_again() -> None:
    assert _plan([Stretch(0, 100, 0, 10)], [], end_at_least=14) == Plan(
        (Keep(0, 100),), False, ((10, 14),), 14
    )


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Ranges of numbers, in any order, overlapping or not."""
    found = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=5))
    return [(first, first + count) for first, count in found]


@given(ranges(), ranges(), st.integers(0, 60))
def test_a_plan_has_every_number_once_and_in_order_or_says_it_is_lost(
    kept: list[tuple[int, int]], journal: list[tuple[int, int]], end: int
) -> None:
    stretches: list[Stretch] = []
    for first, after in sorted(kept):
        if not stretches or first >= stretches[-1].end:
            stretches.append(Stretch(first * 10, after * 10, first, after))
    plan = _plan(stretches, journal, end)
    numbers: list[int] = []
    for piece in plan.pieces:
        numbers += (
            range(piece.position // 10, piece.until // 10)
            if isinstance(piece, Keep)
            else range(piece.first, piece.after)
        )
    assert numbers == sorted(set(numbers))
    lost = [number for first, after in plan.lost for number in range(first, after)]
    assert sorted([*numbers, *lost]) == list(range(plan.end))
    journaled = {number for first, after in journal for number in range(first, after)}
    had = journaled | {number for stretch in stretches for number in range(stretch.base, stretch.end)}
    assert not had & set(lost)
    assert plan.end >= end
