"""The message-format of a record survives everything that the record survives, and uses no space if
it is 0.
"""

from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.inspect import Verified, verify
from amqp_streams.storage.ports import Numbers, Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, SMALL, Hand, open_inline, open_real
from tests.amqp_streams.storage.test_numbered_store import format_of_directory, only, reached

AZURE = 0x80013700


def put(hand: Hand, partition: Partition, *formats: int, size: int = 10) -> None:
    partition.append(
        [b"x" * size] * len(formats),
        bytes(len(formats)),
        NOW,
        formats=array("I", formats) if any(formats) else None,
    )
    hand.commit()


def formats_of(partition: Partition, bytes_max: int = 1 << 20) -> list[int]:
    found: list[int] = []
    at = partition.start
    while (chunk := partition.read(at, bytes_max)) is not None:
        assert chunk.formats is None or any(chunk.formats)
        found += [0] * len(chunk) if chunk.formats is None else chunk.formats
        at = chunk.end
    return found


# -- the directory


def test_a_directory_gets_format_3_with_the_first_message_format_and_keeps_it(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    put(hand, partition, 0)
    assert format_of_directory(tmp_path) == 1
    hand.store.allow_formats()
    hand.store.allow_numbers()
    partition.append([b"both"], bytes(1), NOW, Numbers("p", array("Q", [5])), array("I", [AZURE]))
    hand.commit()
    hand.store.close()
    again = open_real(tmp_path)
    again.store.allow_numbers()
    assert (format_of_directory(tmp_path), reached(only(again)), formats_of(only(again))) == (
        3,
        {"p": 5},
        [0, AZURE],
    )
    again.store.close()
    assert list(verify(tmp_path)) == []


def test_batches_without_formats_stay_as_they_were_in_a_directory_of_format_3(tmp_path: Path) -> None:
    hand = open_real(tmp_path, tuning=replace(SMALL, direct_bytes_min=0))
    hand.store.allow_formats()
    put(hand, hand.store.create("log", LogSettings(), incarnation="i").partitions[0], 0, 0)
    hand.store.close()
    (segment,) = tmp_path.glob("logs/log/0/*.log")
    assert int.from_bytes(segment.read_bytes()[12:16], "little") == 1 | 2 | 4


def test_formats_come_back_from_the_journal_and_from_segments(tmp_path: Path) -> None:
    hand, expected = open_real(tmp_path), list[int]()
    partition = hand.store.create("log", LogSettings(segment_bytes=64 << 10), incarnation="i").partitions[0]
    hand.store.allow_formats()
    for number in range(60):
        formats = [number, 0, 0xFFFFFFFF - number] if number % 2 else [0, 0]
        put(hand, partition, *formats, size=900)
        expected += formats
    counts = Verified()
    assert [
        finding
        for finding in verify(tmp_path, force=True, counts=counts)
        if finding.severity.name == "DAMAGE"
    ] == []
    assert formats_of(partition) == expected
    hand.store.close()
    again = open_real(tmp_path)
    assert formats_of(only(again)) == formats_of(only(again), 1) == expected
    again.store.close()


def test_a_directory_that_cannot_be_marked_takes_no_formats() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    files.fault = lambda operation, path: 28 if catalog.FORMAT_FILE in str(path) else 0
    with pytest.raises(StorageError):
        hand.store.allow_formats()
    files.fault = lambda operation, path: 0
    hand.store.allow_formats()
