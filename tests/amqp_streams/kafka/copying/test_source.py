"""The records of a data directory, in pieces, with and without damage."""

from array import array
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, DirectoryLockedError
from amqp_streams.kafka.copying.source import Piece, Source, Walk
from amqp_streams.kafka.records import amqp
from tests.amqp_streams.storage.conftest import NOW, open_real

COUNT = 300


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with two partitions and several segments, and one without records."""
    hand = open_real(tmp_path / "data")
    log = hand.store.create("temps", LogSettings(partitions=2, segment_bytes=64 << 10), incarnation="i")
    hand.store.create("empty", LogSettings(), incarnation="j")
    for number in range(COUNT):
        for partition in log.partitions:
            hand.write(partition, b"%d-%d" % (partition.index, number) * 100, now_ms=NOW + number)
    log.partitions[1].append([b"any"], b"\x03", NOW + COUNT, formats=array("I", [7]))
    hand.commit()
    hand.keep({"cursor/i/x": b"{}"})
    hand.store.close()
    return tmp_path / "data"


def pieces(walk: Walk, size: int) -> list[Piece]:
    found = []
    while walk.number is not None:
        piece = walk.take(size)
        assert 0 < len(piece.values) <= size
        found.append(piece)
    assert walk.take(size).values == ()
    return found


def test_all_records_come_in_order_in_pieces_of_any_size(directory: Path) -> None:
    source = Source(directory, "temps")
    assert source.record.settings.partitions == 2
    for size in (1, 7, 10_000):
        found = pieces(Walk(source, 0), size)
        values = [value for piece in found for value in piece.values]
        assert values == [b"0-%d" % number * 100 for number in range(COUNT)]
        assert [time for piece in found for time in piece.times_ms] == [NOW + n for n in range(COUNT)]
    assert Walk(source, 0, 250).take(1).first == 250
    assert Walk(Source(directory, "empty"), 0).number is None
    assert source.states() == {"cursor/i/x": b"{}"}


def test_a_record_that_is_not_usual_has_the_value_that_kafka_gets(directory: Path) -> None:
    piece = Walk(Source(directory, "temps"), 1, COUNT).take(5)
    assert piece.messages == [b"any"]
    assert piece.values == amqp.values([b"any"], b"\x03", array("I", [7]))


def damage(directory: Path) -> int:
    """Damage a record in the first segment of partition 0; returns where the next segment begins."""
    first, second, *_ = sorted(directory.glob("logs/temps/0/*.log"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    return int(second.stem)


def test_a_damaged_record_ends_the_walk_or_is_skipped_and_described(directory: Path) -> None:
    next_segment = damage(directory)
    with pytest.raises(CorruptionError, match="damaged or missing"):
        pieces(Walk(Source(directory, "temps"), 0), 10_000)
    source = Source(directory, "temps", skip_damaged=True)
    for _ in range(2):
        found = pieces(Walk(source, 0), 10_000)
        numbers = [piece.first + index for piece in found for index in range(len(piece.values))]
        assert numbers == sorted(set(numbers))
        assert 0 < COUNT - len(numbers) < next_segment
        assert numbers[-1] == COUNT - 1
    [words] = source.damaged
    assert words.startswith("partition 0: ")


def test_a_directory_that_a_node_uses_and_a_log_that_does_not_exist_are_refused(directory: Path) -> None:
    with pytest.raises(KeyError):
        Source(directory, "nope")
    hand = open_real(directory)
    with pytest.raises(DirectoryLockedError):
        Source(directory, "temps")
    hand.store.close()
