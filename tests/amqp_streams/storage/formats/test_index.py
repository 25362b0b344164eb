"""The index points to the stretch that holds a record, or is known not to be one."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats.index import SPACING_BYTES, Coverage, Index
from amqp_streams.storage.ports import Reached

COVERAGE = Coverage(base=7, end=99, first_timestamp_ms=1, last_timestamp_ms=5, bytes=1 << 20)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Base, timestamp and position of the batches of a segment."""
    base, stamp, position = 7, 100, 0
    found: list[tuple[int, int, int]] = []
    for count, ms, size in draw(
        st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3), st.integers(60, 40_000)), min_size=1)
    ):
        found.append((base, stamp, position))
        base, stamp, position = base + count, stamp + ms, position + size
    return found


def _index(found: list[tuple[int, int, int]]) -> Index:
    index = Index()
    for base, stamp, position in found:
        index.add(base, stamp, position)
    return index


PRODUCERS = st.dictionaries(
    st.text("aé/", min_size=1, max_size=9),
    st.builds(Reached, st.integers(0, 1 << 63), st.integers(0, 1 << 50)),
)


@given(batches(), PRODUCERS)
def test_an_index_file_holds_what_was_put_in(
    found: list[tuple[int, int, int]], producers: dict[str, Reached]
) -> None:
    index = _index(found)
    decoded = index_file.decode(index_file.encode(COVERAGE, index, 3, producers), 7, 3)
    assert decoded is not None
    assert decoded[0] == COVERAGE
    assert decoded.producers == producers
    assert (decoded[1].bases, decoded[1].stamps, decoded[1].positions) == (
        index.bases,
        index.stamps,
        index.positions,
    )


@given(batches(), PRODUCERS, st.data())
def test_a_damaged_index_file_is_known_for_one(
    found: list[tuple[int, int, int]], producers: dict[str, Reached], data: st.DataObject
) -> None:
    encoded = bytearray(index_file.encode(COVERAGE, _index(found), 3, producers))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= 1 << data.draw(st.integers(0, 7))
    assert index_file.decode(bytes(encoded), 7, 3) is None
    assert index_file.decode(bytes(encoded[:position]), 7, 3) is None


def test_an_index_of_another_segment_or_partition_is_not_used() -> None:
    encoded = index_file.encode(COVERAGE, Index(), 3)
    assert index_file.decode(encoded, 8, 3) is None
    assert index_file.decode(encoded, 7, 4) is None


@given(batches(), st.data())
def test_the_stretch_found_by_number_holds_the_record(
    found: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    index, size = _index(found), found[-1][2] + 60
    base, _, position = data.draw(st.sampled_from(found))
    first, until = index.extent_of(base, size)
    assert first <= position < until
    assert position - first < SPACING_BYTES


@given(batches(), st.integers(90, 400))
def test_the_stretch_found_by_time_holds_the_first_later_record_or_ends_before_it(
    found: list[tuple[int, int, int]], after_ms: int
) -> None:
    index, size = _index(found), found[-1][2] + 60
    _, until = index.extent_before(after_ms, size)
    later = [position for _, stamp, position in found if stamp > after_ms]
    first, _ = index.extent_before(after_ms, size)
    assert not later or first <= min(later) <= until or found[0][1] > after_ms


def test_an_empty_index_means_the_whole_segment() -> None:
    assert Index().extent_of(5, 1000) == (0, 1000)
    assert Index().extent_before(5, 1000) == (0, 1000)
