"""A backup has what was accepted, copies only what is new, and leaves the folder as it was if it fails."""

import errno
from array import array
from pathlib import Path

import pytest

from amqp_streams.errors import DirectoryLockedError, StorageError
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.backups import creating
from amqp_streams.storage.backups.checking import check
from amqp_streams.storage.backups.folder import RESERVE_BYTES
from amqp_streams.storage.backups.pace import Pace
from amqp_streams.storage.formats.manifest import Manifest
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.segment import segment_path
from amqp_streams.storage.ports import Numbers
from amqp_streams.storage.questions import Delete
from tests.amqp_streams.storage.backups.conftest import FOLDER, SETTINGS, TARGET, Machine, content, opened
from tests.amqp_streams.storage.conftest import NOW, ROOT


def _files(machine: Machine) -> dict[Path, bytes]:
    return {
        path: bytes(machine.files.content(path))
        for path in machine.files.paths()
        if FOLDER in path.parents and path.suffix == ".log"
    }


def test_a_restored_backup_has_every_event_at_its_offset(machine: Machine) -> None:
    machine.fill(400)
    machine.hand.keep({"cursor/of-temps/a": b"1", "epoch/of-temps/0/g": b"2"})
    before = machine.content()
    made = machine.back_up()
    assert made.manifest.events == 3 * 400
    assert made.manifest.journal.bytes, "some events are in the journal only"
    machine.fill(10)
    machine.restore()
    hand = machine.restored()
    assert content(hand) == before
    assert dict(hand.store.states.items("")) == {"cursor/of-temps/a": b"1", "epoch/of-temps/0/g": b"2"}
    assert hand.store.identity == machine.hand.store.identity
    assert hand.store.logs["temps"].incarnation == "of-temps"
    hand.store.close()


def test_a_second_backup_copies_only_what_is_new(machine: Machine) -> None:
    machine.fill(900)
    first = machine.back_up()
    files = _files(machine)
    machine.fill(40)
    second = machine.back_up()
    assert first.copied > 200_000
    assert 0 < second.copied < 40_000
    assert {
        path
        for path, data in _files(machine).items()
        if files.get(path, data) != data[: len(files.get(path, data))]
    } == set()
    assert not check(machine.folder).faults
    third = machine.back_up()
    assert third.copied == 0


def test_an_earlier_backup_stays_what_it_was(machine: Machine) -> None:
    machine.fill(30)
    before, first = machine.content(), machine.back_up()
    machine.fill(300)
    machine.back_up()
    machine.restore(name=first.manifest.name)
    hand = machine.restored()
    assert content(hand) == before
    hand.store.close()


def test_keep_removes_the_oldest_and_what_only_they_need(machine: Machine) -> None:
    named = machine.back_up(name="before")
    for number in range(4):
        machine.fill(300)
        machine.back_up(keep=2)
        machine.now_ms += number + 1000
    assert len(machine.folder.names()) == 3
    assert named.manifest.name in machine.folder.names()
    settings = SETTINGS.model_copy(update={"retention_ms": 60_000})
    machine.hand.store.update("temps", settings)
    machine.retain()
    before = len(_files(machine))
    for _ in range(2):
        machine.now_ms += 1000
        machine.back_up(keep=2)
    assert len(_files(machine)) < before
    assert not check(machine.folder).faults


def test_a_log_that_was_deleted_and_created_again_is_another_log(machine: Machine) -> None:
    machine.fill(50)
    first = machine.back_up()
    machine.hand.ask(Delete("temps"))
    machine.hand.store.create("temps", SETTINGS, incarnation="later")
    machine.fill(3, size=7)
    before, second = machine.content(), machine.back_up()
    uids = [next(log.uid for log in made.manifest.logs if log.name == "temps") for made in (first, second)]
    assert uids[0] != uids[1]
    machine.restore()
    hand = machine.restored()
    assert content(hand) == before
    assert hand.store.logs["temps"].incarnation == "later"
    hand.store.close()


def test_a_log_that_is_deleted_meanwhile_is_not_in_the_backup(machine: Machine) -> None:
    machine.fill(50)
    deleted = False

    def fault(operation: str, path: Path) -> int:
        nonlocal deleted
        # The journal was read, and the segments are looked at.
        if not deleted and operation == "open" and path.suffix == ".log" and ROOT in path.parents:
            deleted = True
            machine.hand.ask(Delete("temps"))
        return 0

    machine.files.fault = fault
    made = machine.back_up()
    assert made.deleted == ["temps"]
    assert [log.name for log in made.manifest.logs] == ["other"]
    assert not made.manifest.damage


def test_a_full_disk_is_reported_and_leaves_the_earlier_backups_and_the_node(machine: Machine) -> None:
    machine.fill(20)
    machine.back_up()
    used = sum(len(machine.files.content(path)) for path in machine.files.paths())
    machine.fill(900)
    machine.files.space = used + RESERVE_BYTES + 200_000
    with pytest.raises(StorageError, match="the disk is full: free space on it, use --keep"):
        machine.back_up()
    assert len(machine.folder.names()) == 1
    assert not check(machine.folder).faults
    left = sum(len(data) for data in _files(machine).values())
    assert left < 100_000, "what the failed backup copied is removed"
    machine.fill(1)
    machine.files.space = None
    assert machine.back_up().manifest.events == 3 * 921


def test_a_source_that_cannot_be_read_costs_only_what_is_there(machine: Machine) -> None:
    machine.fill(700)
    bad = segment_path(ROOT / "logs" / "temps" / "1", 0)
    machine.files.fault = lambda operation, path: errno.EIO if (operation, path) == ("pread", bad) else 0
    made = machine.back_up()
    assert any("Input/output error" in words for words in made.manifest.damage)
    assert {log.name for log in made.manifest.logs} == {"temps", "other"}
    machine.files.fault = lambda operation, path: 0
    again = machine.back_up()
    assert not again.manifest.damage


def test_damage_of_the_node_is_reported_by_every_backup(machine: Machine) -> None:
    machine.fill(700)
    path = segment_path(ROOT / "logs" / "temps" / "1", 0)

    def flip(data: bytearray) -> None:
        data[5000] ^= 1

    machine.disk.damage(path, flip)
    for _ in range(2):
        damage = machine.back_up().manifest.damage
        assert [words for words in damage if "logs/temps/1" in words and "damaged" in words], damage


def test_a_good_copy_outlives_damage_of_the_node(machine: Machine) -> None:
    """What was copied before the damage is what a later backup has, too."""
    machine.fill(700)
    before = machine.content()
    machine.back_up()
    path = segment_path(ROOT / "logs" / "temps" / "1", 0)
    machine.disk.damage(path, lambda data: data.__setitem__(5000, data[5000] ^ 1))
    assert not machine.back_up().manifest.damage
    machine.restore()
    hand = machine.restored()
    assert content(hand) == before
    hand.store.close()


def test_events_that_the_node_lost_are_missed(machine: Machine) -> None:
    """The node had accepted them: the checkpoint and the file `ends` know."""
    machine.fill(700)
    last = machine.hand.store.logs["temps"].partitions[2].segments.active.path  # type: ignore[attr-defined]  # a PartitionLog
    machine.hand.store.close()
    machine.disk.damage(last, lambda data: data.__delitem__(slice(900, None)))
    made = machine.back_up()
    assert any("logs/temps/2: records" in words for words in made.manifest.damage), made.manifest.damage
    [log] = [log for log in made.manifest.logs if log.name == "temps"]
    assert log.partitions[2].reached == 700 > log.partitions[2].end
    machine.restore()
    hand = opened(machine.files, TARGET)
    # The numbers of lost events are not used again.
    assert hand.store.logs["temps"].partitions[2].end == 700
    hand.store.close()
    machine.hand = opened(machine.disk, ROOT)


def test_only_one_command_writes_to_a_folder(machine: Machine) -> None:
    machine.back_up()
    folder = machine.folder
    folder.lock()
    with pytest.raises(DirectoryLockedError, match="another backup command"):
        machine.back_up()
    folder.unlock()
    machine.back_up()


@pytest.mark.parametrize("target", [ROOT, ROOT / "inside", ROOT.parent])
def test_a_folder_is_not_within_the_data_directory(machine: Machine, target: Path) -> None:
    with pytest.raises(StorageError, match="must not contain each other"):
        creating.create(machine.files, ROOT, target)


def test_a_path_that_is_not_a_data_directory_is_refused(machine: Machine) -> None:
    with pytest.raises(StorageError, match="is not a data directory"):
        creating.create(machine.files, Path("/nowhere"), FOLDER)
    assert not machine.files.is_dir(FOLDER)


def test_names_are_checked_and_never_used_twice(machine: Machine) -> None:
    for name in ("../x", "a b", ""):
        with pytest.raises(StorageError, match="is not a valid name"):
            machine.back_up(name=name)
    machine.back_up(name="mine")
    with pytest.raises(StorageError, match="use another name"):
        machine.back_up(name="mine")
    names = [machine.back_up().manifest.name for _ in range(3)]
    assert len(set(names)) == 3


def test_a_folder_has_a_bounded_number_of_backups(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creating, "BACKUPS_MAX", 2)
    machine.back_up()
    machine.back_up()
    with pytest.raises(StorageError, match="has 2 backups: remove some"):
        machine.back_up()


def test_the_reads_and_writes_are_paced(machine: Machine) -> None:
    machine.fill(300)
    slept: list[float] = []
    pace = Pace(100_000, clock=lambda: 0.0, sleep=slept.append)
    made = machine.back_up(pace=pace)
    assert max(slept) > made.copied / 100_000 * 0.9


def test_progress_ends_at_what_was_copied(machine: Machine) -> None:
    machine.fill(300)
    steps: list[tuple[int, int]] = []
    made = machine.back_up(progress=lambda done, total: steps.append((done, total)))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == made.copied <= steps[-1][1]


def test_an_idle_node_is_backed_up_with_its_last_timestamp(machine: Machine) -> None:
    """An empty log and an empty partition have no files, and are restored nevertheless."""
    made = machine.back_up()
    assert isinstance(made.manifest, Manifest)
    machine.restore()
    hand = machine.restored()
    assert set(hand.store.logs) == {"temps", "other"}
    assert hand.write(hand.store.logs["other"].partitions[0], b"first", now_ms=NOW) == 0
    hand.store.close()


def test_a_partition_whose_events_retention_removed_keeps_its_numbers(machine: Machine) -> None:
    machine.fill(300)
    machine.hand.store.update("temps", SETTINGS.model_copy(update={"retention_ms": 60_000}))
    machine.retain()
    partition = machine.hand.store.logs["temps"].partitions[0]
    assert partition.start == partition.end == 300
    machine.back_up()
    machine.restore()
    hand = machine.restored()
    restored = hand.store.logs["temps"].partitions[0]
    assert (restored.start, restored.end) == (300, 300)
    assert hand.write(restored, b"next", now_ms=machine.now_ms) == 300
    hand.store.close()


def test_producers_whose_events_were_removed_are_known_although_the_last_segment_is_empty(
    machine: Machine,
) -> None:
    """Only the index of the empty segment has them all: nothing of it is copied."""
    store = machine.hand.store
    assert isinstance(store, DirectoryStore)
    store.allow_numbers()
    partition = store.logs["temps"].partitions[0]
    assert isinstance(partition, PartitionLog)
    partition.append([b"numbered"], bytes(1), NOW, Numbers("meter", array("Q", [7])))
    machine.fill(900)
    store.update("temps", SETTINGS.model_copy(update={"retention_ms": 1000}))
    store._flusher.flush(partition)
    machine.hand.loop.run_ready()
    store.apply_retention(partition.segments.row[0].last_timestamp_ms + 1001)
    machine.hand.loop.run_ready()
    assert partition.start > 0
    store._flusher.seal(partition)
    store._flusher.sync(partition, with_index=True)
    machine.hand.loop.run_ready()
    assert not partition.segments.active.bytes
    machine.back_up()
    machine.restore()
    restored = machine.restored().store.logs["temps"].partitions[0]
    assert restored.end == partition.end
    assert restored.producers["meter"].sequence == 7
