"""What works without a node reads compressed segments: verify, dump, repair, copy, backup and restore."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqp_streams.errors import StorageError
from amqp_streams.log_settings import Compression
from amqp_streams.storage import Severity, inspect
from amqp_streams.storage.catalog import seal
from amqp_streams.storage.repairing import plan, repair
from amqp_streams.wire.batched import compression
from tests.amqp_streams.storage.backups.conftest import FOLDER as BACKUP
from tests.amqp_streams.storage.backups.conftest import SETTINGS, Machine, content
from tests.amqp_streams.storage.compressed import ZSTD, compress, compressed_count, filled
from tests.amqp_streams.storage.conftest import ROOT, open_real, read_all
from tests.properties import examples


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A data directory with compressed segments, and the messages of its log."""
    path = tmp_path_factory.mktemp("compressed") / "data"
    hand = open_real(path, threads=False)
    partition, sent = filled(hand)
    compress(hand)
    assert compressed_count(partition) == len(partition.segments.row) - 1
    hand.store.close()
    return path, sent


def packed(directory: Path) -> Path:
    """The first compressed segment."""
    return min(directory.glob("logs/log/0/*.logz"))


def test_verify_counts_the_records_and_finds_nothing(written: tuple[Path, list[bytes]]) -> None:
    path, sent = written
    counts = inspect.Verified()
    seen: list[tuple[int, int]] = []
    assert not list(inspect.verify(path, counts=counts, progress=lambda *each: seen.append(each)))
    stored = [each for each in path.glob("logs/log/0/*") if each.suffix in {".log", ".logz"}]
    assert (counts.records, counts.segments) == (len(sent), len(stored))
    assert counts.bytes == sum(each.stat().st_size for each in stored)
    assert seen[-1] == (counts.bytes, counts.bytes)


def test_dump_and_the_source_of_a_copy_have_every_record(written: tuple[Path, list[bytes]]) -> None:
    path, sent = written
    assert [each.message for each in inspect.dump(path, "log")] == sent
    assert [each.message for each in inspect.dump(path, "log", start=700, count=9)] == sent[700:709]
    chunks = inspect.chunks(path, "log", 0)
    assert [message for chunk in chunks for message in chunk.messages] == sent
    assert [index for index, _ in inspect.dump_producers(path, "log")] == [0]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_verify_finds_each_flipped_bit_of_a_compressed_segment(
    written: tuple[Path, list[bytes]], data: st.DataObject
) -> None:
    path, sent = written
    file = packed(path)
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(damaged)
    try:
        found = list(inspect.verify(path))
        assert found
        assert all(each.severity is not Severity.NOTE for each in found)
        assert any(each.file.endswith(file.name) for each in found)
        kept = [each.message for each in _dumped(path)]
        assert set(kept) <= set(sent)
    finally:
        file.write_bytes(whole)


def _dumped(path: Path) -> list[inspect.DumpedRecord]:
    """The readable records."""
    found: list[inspect.DumpedRecord] = []
    start = 0
    while True:
        try:
            for each in inspect.dump(path, "log", start=start):
                found.append(each)
                start = each.number + 1
        except StorageError as error:
            start = getattr(error, "after", None) or 1 << 40
            continue
        return found


@pytest.mark.parametrize("cut", [0, 5, 100, 2000, -1, -30])
def test_verify_finds_a_compressed_segment_that_was_cut(
    written: tuple[Path, list[bytes]], tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "data"
    shutil.copytree(written[0], path)
    file = packed(path)
    file.write_bytes(file.read_bytes()[:cut])
    assert [each for each in inspect.verify(path) if each.severity is not Severity.NOTE]


def test_repair_keeps_a_copy_of_a_damaged_segment_and_says_what_is_lost(
    written: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    shutil.copytree(written[0], path)
    file = packed(path)
    data = bytearray(file.read_bytes())
    data[300] ^= 1
    file.write_bytes(data)
    done = repair(plan(path), name="now")
    assert done.quarantine is not None
    assert (done.quarantine / "logs" / "log" / "0" / file.name).read_bytes() == data
    assert any("records 0 to" in each for each in done.lost)
    hand = open_real(path)
    partition = hand.store.logs["log"].partitions[0]
    assert partition.end == len(written[1])
    at = partition.end - 300
    assert read_all(partition, at) == written[1][at:]
    hand.store.close()


def test_commands_without_the_library_say_which_extra_is_missing(
    written: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_codec", lambda _name: None)
    with pytest.raises(StorageError, match=r"zstd needs the compression extra"):
        list(inspect.verify(written[0]))
    with pytest.raises(StorageError, match=r"zstd needs the compression extra"):
        plan(written[0])
    with pytest.raises(StorageError, match=r"zstd needs the compression extra"):
        list(inspect.dump(written[0], "log"))


def test_an_earlier_version_refuses_the_directory(
    written: tuple[Path, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the formats 1 to 3."""
    path = tmp_path / "data"
    shutil.copytree(written[0], path)
    with monkeypatch.context() as earlier:
        earlier.setattr("amqp_streams.storage.catalog.FORMATS", range(1, 4))
        with pytest.raises(StorageError, match="has format 4, but this version reads formats 1 to 3"):
            open_real(path)
    # A lost format file is written again with the format that older versions refuse.
    (path / "format.json").unlink()
    open_real(path).store.close()
    assert b'"format":4' in (path / "format.json").read_bytes()
    (path / "format.json").write_bytes(seal({"format": 5, "id": "0" * 16}))
    with pytest.raises(StorageError, match="has format 5, but this version reads formats 1 to 4"):
        open_real(path)


def test_settings_of_an_earlier_version_are_read_and_it_reads_those_without_compression() -> None:
    """An earlier version refuses unknown settings: so the log has this one next to them."""
    machine = Machine()
    content_ = bytes(machine.files.content(ROOT / "logs" / "temps" / "log.json"))
    assert b"compression" not in content_
    machine.hand.store.update("temps", SETTINGS.model_copy(update={"compression": Compression.LZ4}))
    content_ = bytes(machine.files.content(ROOT / "logs" / "temps" / "log.json"))
    assert b'"compression":"lz4","incarnation"' in content_
    machine.hand.store.close()
    machine.disk.kill()
    assert machine.restored(ROOT).store.logs["temps"].settings.compression == "lz4"


def machine_with(count: int, size: int = 100) -> Machine:
    machine = Machine()
    machine.hand.store.update("temps", SETTINGS.model_copy(update={"compression": Compression.ZSTD}))
    machine.fill(count, size)
    return machine


def test_a_backup_of_compressed_segments_restores_every_event() -> None:
    machine = machine_with(700)
    compress(machine.hand, 60)
    assert any(path.suffix == ".logz" for path in machine.files.paths())
    before = machine.content()
    made = machine.back_up()
    assert not made.manifest.damage
    machine.restore()
    hand = machine.restored()
    assert content(hand) == before
    assert hand.store.logs["temps"].settings.compression == "zstd"
    compress(hand, 60)
    assert content(hand) == before
    hand.store.close()


def test_a_backup_after_the_compression_copies_nothing_again() -> None:
    machine = machine_with(700)
    first = machine.back_up()
    assert first.copied > 150_000
    compress(machine.hand, 60)
    second = machine.back_up()
    assert second.copied < 64 << 10
    machine.restore()
    assert content(machine.restored()) == machine.content()


def test_segments_that_are_compressed_during_a_backup_are_in_it() -> None:
    """Whichever file it opens next."""
    for operations in range(3, 60, 7):
        machine = machine_with(200, 500)
        left = [operations]

        def fault(operation: str, path: Path, machine: Machine = machine, left: list[int] = left) -> int:
            if BACKUP in path.parents or ROOT in path.parents:
                left[0] -= 1
                if left[0] == 0:
                    compress(machine.hand, 60)
            return 0

        machine.files.fault = fault
        made = machine.back_up()
        machine.files.fault = lambda operation, path: 0
        assert not made.manifest.damage
        machine.restore()
        assert content(machine.restored()) == machine.content()


def test_a_log_without_compression_has_no_file_of_it() -> None:
    machine = Machine()
    machine.fill(700)
    compress(machine.hand, 20)
    assert not any(path.suffix == ".logz" for path in machine.files.paths())
    assert ZSTD.compression == "zstd"
