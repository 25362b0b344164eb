"""`verify` finds all errors and nothing else, `dump` shows the contents, and neither changes a byte."""

from pathlib import Path
from time import time

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, DirectoryLockedError, StorageError
from amqp_streams.storage import Severity
from amqp_streams.storage.inspect import Verified, dump, log_names, verify
from tests.amqp_streams.storage.conftest import NOW, open_real


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two partitions with some segments each, closed in order."""
    hand = open_real(tmp_path / "data")
    partitions = hand.store.create(
        "log", LogSettings(partitions=2, segment_bytes=64 << 10), incarnation="i"
    ).partitions
    for round_ in range(60):
        for partition in partitions:
            partition.append(
                [b"%d-%d-%d" % (partition.index, round_, place) * 50 for place in range(10)],
                bytes(10),
                NOW + round_,
            )
        hand.commit()
    hand.store.close()
    return tmp_path / "data"


def _bytes(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_sound_directory_has_no_findings_and_is_left_as_it_is(directory: Path) -> None:
    before, counts, seen = _bytes(directory), Verified(), list[tuple[int, int]]()
    assert (
        list(verify(directory, counts=counts, progress=lambda done, total: seen.append((done, total)))) == []
    )
    assert (counts.logs, counts.partitions, counts.records) == (1, 2, 1200)
    assert counts.segments > 4
    assert seen[-1][0] == seen[-1][1] == counts.bytes
    assert _bytes(directory) == before


def test_timestamps_that_are_ahead_of_the_clock_are_noted(tmp_path: Path) -> None:
    hand = open_real(tmp_path / "data")
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.write(partition, b"a", now_ms=int(time() * 1000) + 86_400_000)
    hand.store.close()
    [finding] = verify(tmp_path / "data")
    assert (finding.severity, finding.file) == (Severity.NOTE, "logs/log/0")
    assert "ahead of the clock" in finding.words


def test_every_flipped_byte_of_a_segment_is_found_with_its_place(directory: Path) -> None:
    path = min(directory.glob("logs/log/0/*.log"))
    original = path.read_bytes()
    for position in range(0, len(original), 7001):
        path.write_bytes(original[:position] + bytes([original[position] ^ 1]) + original[position + 1 :])
        damage = [finding for finding in verify(directory) if finding.severity is Severity.DAMAGE]
        assert damage
        assert damage[0].file == f"logs/log/0/{path.name}"


def test_a_running_server_is_not_changed_without_the_flag(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.write(partition, b"a", b"b")
    with pytest.raises(DirectoryLockedError, match="in use by process"):
        list(verify(tmp_path))
    with pytest.raises(DirectoryLockedError, match="in use by process"):
        list(dump(tmp_path, "log"))
    assert [record.message for record in dump(tmp_path, "log", force=True)] == [b"a", b"b"]
    counts = Verified()
    assert not [
        finding
        for finding in verify(tmp_path, force=True, counts=counts)
        if finding.severity is Severity.DAMAGE
    ]
    assert counts.records == 2, "though no segment has them yet"
    hand.store.close()


def test_another_folder_is_not_a_data_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a data directory"):
        list(verify(tmp_path))
    with pytest.raises(StorageError, match="is not a data directory"):
        log_names(tmp_path)


def test_dump_shows_records_with_number_and_time(directory: Path) -> None:
    assert log_names(directory) == ["log"]
    records = list(dump(directory, "log"))
    assert [record.partition for record in records] == [0] * 600 + [1] * 600
    assert [record.number for record in records[:600]] == list(range(600))
    assert records[605].message == b"1-0-5" * 50
    assert [record.timestamp_ms for record in records[:600]] == [NOW + number // 10 for number in range(600)]


def test_dump_begins_at_a_number_or_a_time_and_ends_at_a_count(directory: Path) -> None:
    assert [record.number for record in dump(directory, "log", partition=1, start=123, count=3)] == [
        123,
        124,
        125,
    ]
    assert [record.number for record in dump(directory, "log", partition=0, after_ms=NOW + 41, count=2)] == [
        420,
        421,
    ]
    with pytest.raises(KeyError):
        list(dump(directory, "log", partition=2))
    with pytest.raises(KeyError):
        list(dump(directory, "none"))


def test_dump_stops_at_damage_and_shows_where_to_continue(directory: Path) -> None:
    path = min(directory.glob("logs/log/0/*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    seen: list[int] = []
    with pytest.raises(CorruptionError) as caught:
        seen += [record.number for record in dump(directory, "log", partition=0)]
    assert caught.value.after is not None
    rest = [record.number for record in dump(directory, "log", partition=0, start=caught.value.after)]
    assert rest == list(range(caught.value.after, 600))


def test_damage_that_a_start_would_not_repair_is_damage_though_the_journal_has_the_records(
    tmp_path: Path,
) -> None:
    """A start does not scan what an index covers. The store would refuse to read it, so `verify` must not
    report it as a torn tail.
    """
    hand = open_real(tmp_path / "data")
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.write(partition, *[b"%04d" % number for number in range(50)])
    hand.store.close()
    path = next((tmp_path / "data").glob("logs/log/0/*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert Severity.DAMAGE in {finding.severity for finding in verify(tmp_path / "data")}
    hand = open_real(tmp_path / "data")
    with pytest.raises(CorruptionError):
        hand.store.logs["log"].partitions[0].read(0, 1000)
    hand.store.close()


def test_a_torn_tail_is_not_damage_though_the_commit_had_created_the_next_segments(tmp_path: Path) -> None:
    """A commit creates all its segments before it writes the first one, and a kill can come in between."""
    hand = open_real(tmp_path / "data")
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.write(partition, b"one", b"two")
    hand.store.close()
    path = next((tmp_path / "data").glob("logs/log/0/*.log"))
    with path.open("ab") as file:
        file.write(path.read_bytes()[:20])
    for number in (5, 9):
        path.with_name(f"{number:016}.log").touch()
    [finding] = verify(tmp_path / "data")
    assert (finding.severity, finding.file) == (Severity.NOTE, "logs/log/0/0000000000000000.log")
    assert "the next start cuts them off" in finding.words
    hand = open_real(tmp_path / "data")
    partition = hand.store.logs["log"].partitions[0]
    assert partition.end == 2
    hand.write(partition, b"three")
    hand.store.close()
    assert [record.message for record in dump(tmp_path / "data", "log")] == [b"one", b"two", b"three"]
    assert list(verify(tmp_path / "data")) == []


def test_dump_of_a_segment_without_a_whole_record_shows_what_the_journal_has(tmp_path: Path) -> None:
    hand = open_real(tmp_path / "data")
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.write(partition, b"one", b"two")
    hand.store.close()
    path = next((tmp_path / "data").glob("logs/log/0/*.log"))
    path.write_bytes(bytes(path.stat().st_size))
    assert [record.message for record in dump(tmp_path / "data", "log")] == [b"one", b"two"]
