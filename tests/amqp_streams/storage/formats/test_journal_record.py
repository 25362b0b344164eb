"""A journal record counts only if it is complete, of this directory and of this use."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import journal_record, record
from amqp_streams.storage.ports import Chunk

SEED = journal_record.seed_of(42)
keys = st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, 1023))


def _record(parts: list[tuple[int, int]]) -> bytes:
    batches = [
        b"".join(
            record.encode(Chunk(0, array("q", [1]), b"\0", [b"message"]), record.seed_of(uid, partition))
        )
        for uid, partition in parts
    ]
    entries = [(uid, partition, len(batch)) for (uid, partition), batch in zip(parts, batches, strict=True)]
    data = b"".join(batches)
    return journal_record.encode(3, 4, entries, batches_bytes=len(data), seed=SEED) + data


@given(st.lists(keys, max_size=6))
def test_a_record_decodes_to_what_was_encoded(parts: list[tuple[int, int]]) -> None:
    data = _record(parts)
    head = journal_record.decode(data, SEED)
    assert head is not None
    assert (head.generation, head.sequence, head.length) == (3, 4, len(data))
    assert [entry[:2] for entry in head.entries] == parts
    assert journal_record.batches_are_whole(data, head)
    assert journal_record.bytes_needed(len(parts), len(data) - head.batches_at) % journal_record.ALIGN == 0


@given(st.lists(keys, min_size=1, max_size=4), st.data())
def test_a_flipped_bit_spoils_the_header_or_a_batch(
    parts: list[tuple[int, int]], data: st.DataObject
) -> None:
    changed = bytearray(_record(parts))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    head = journal_record.decode(bytes(changed), SEED)
    assert head is None or not journal_record.batches_are_whole(bytes(changed), head)


@given(st.binary(max_size=200))
def test_garbage_is_not_a_record_and_never_raises(data: bytes) -> None:
    assert journal_record.decode(data, SEED) is None
    assert journal_record.decode(journal_record.MAGIC + data, SEED) is None


def test_a_record_of_another_directory_does_not_count() -> None:
    assert journal_record.decode(_record([(1, 2)]), journal_record.seed_of(43)) is None
