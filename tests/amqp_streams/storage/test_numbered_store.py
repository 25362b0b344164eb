"""The progress of producers survives everything that their events survive, and retention."""

import json
from array import array
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from amqp_streams.config import LogSettings, Sync
from amqp_streams.errors import DiskFullError, StorageError
from amqp_streams.storage import DirectoryStore, Severity, catalog
from amqp_streams.storage.formats import record
from amqp_streams.storage.inspect import Verified, dump_producers, verify
from amqp_streams.storage.ports import Numbers, Partition
from amqp_streams.testing import FaultyFiles, ManualLoop
from tests.amqp_streams.storage.conftest import NOW, ROOT, SMALL, Hand, open_inline, open_real, read_all

HOUR_MS = 3_600_000
AGED = LogSettings(segment_bytes=64 << 10, segment_ms=HOUR_MS, retention_ms=2 * HOUR_MS)


def reached(partition: Partition) -> dict[str, int]:
    return {producer: one.sequence for producer, one in partition.producers.items()}


def put(
    hand: Hand,
    partition: Partition,
    producer: str,
    first: int,
    *messages: bytes,
    now_ms: int = NOW,
    gone: tuple[str, ...] = (),
) -> None:
    numbers = Numbers(producer, array("Q", range(first, first + len(messages))), gone)
    partition.append(list(messages), bytes(len(messages)), now_ms, numbers)
    hand.commit()


def only(hand: Hand) -> Partition:
    return hand.store.logs["log"].partitions[0]


# -- directories


def test_numbers_of_a_failed_commit_are_not_known() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.store.allow_numbers()
    put(hand, partition, "p", 0, b"a")
    files.fault = lambda operation, path: 28 if operation == "pwritev" and "journal" in str(path) else 0
    put(hand, partition, "p", 1, b"b")
    assert isinstance(next(iter(hand.done[-1].failures.values())), DiskFullError)
    files.fault = lambda operation, path: 0
    assert reached(partition) == {"p": 0}


@pytest.mark.parametrize("clean", [True, False])
def test_retention_forgets_no_producer(clean: bool) -> None:
    """The events of idle producers are removed segment by segment until none is left. Then the process is
    killed, or not.
    """
    files = FaultyFiles()
    hand = open_inline(files)
    partition = hand.store.create("log", AGED, incarnation="i").partitions[0]
    hand.store.allow_numbers()
    put(hand, partition, "idle", 41, b"x" * 100)
    for hour in range(1, 30):
        now_ms = NOW + hour * HOUR_MS
        put(hand, partition, "busy", hour, b"y" * 3000, now_ms=now_ms)
        hand.store.apply_retention(now_ms)
        hand.loop.run_ready()
    for hour in range(30, 40):  # and then no producer sends: every event is removed
        hand.store.apply_retention(NOW + hour * HOUR_MS)
        hand.loop.run_ready()
    assert partition.start == partition.end
    hand.store.close() if clean else files.power_loss(None)
    again = open_inline(files)
    assert only(again).start == only(again).end == partition.end
    assert reached(only(again)) == {"idle": 41, "busy": 29}


def test_an_index_does_not_describe_the_records_after_it() -> None:
    """With sync=never, a power loss removes records that an index of a closed segment must not describe,
    because that would be a gap.
    """
    files, tuning = FaultyFiles(), replace(SMALL, sync_bytes=1 << 30, index_bytes=1 << 30)

    def opened() -> Hand:
        loop = ManualLoop()
        sync = Sync.parse("never")
        return Hand(
            DirectoryStore.open(ROOT, sync, loop_call=loop.call, files=files, tuning=tuning, threads=False),
            loop,
        )

    hand = opened()
    partition = hand.store.create("log", LogSettings(segment_bytes=64 << 10), incarnation="i").partitions[0]
    hand.store.allow_numbers()
    put(hand, partition, "p", 0, *[b"x" * 80_000] * 40)  # one commit, several segments
    files.power_loss(None)
    again = opened()
    left = only(again).end
    assert 0 < left < 40
    assert reached(only(again)) == {"p": left - 1}


def test_a_lost_index_costs_only_the_producers_in_no_remaining_segment(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    partition = hand.store.create("log", LogSettings(segment_bytes=64 << 10), incarnation="i").partitions[0]
    hand.store.allow_numbers()
    put(hand, partition, "idle", 7, b"x")
    for number in range(40):
        put(hand, partition, "busy", number, b"x" * 9000)
    hand.store.close()
    for path in tmp_path.glob("logs/log/0/*.idx"):
        path.unlink()
    again = open_real(tmp_path)
    assert reached(only(again)) == {"idle": 7, "busy": 39}
    again.store.close()


# -- formats


def format_of_directory(directory: Path) -> int:
    content: dict[str, int] = json.loads((directory / "format.json").read_bytes())["content"]
    return content["format"]


def test_a_directory_gets_format_2_with_the_first_numbers_and_keeps_it(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.write(partition, b"plain")
    assert format_of_directory(tmp_path) == 1
    hand.store.allow_numbers()
    assert format_of_directory(tmp_path) == 2
    put(hand, partition, "p", 5, b"numbered")
    hand.store.close()
    again = open_real(tmp_path)
    assert (format_of_directory(tmp_path), reached(only(again)), read_all(only(again))) == (
        2,
        {"p": 5},
        [b"plain", b"numbered"],
    )
    again.store.close()


def test_a_directory_without_numbers_stays_as_older_programs_know_it(tmp_path: Path) -> None:
    for _ in range(2):
        hand = open_real(tmp_path)
        if "log" not in hand.store.logs:
            hand.store.create("log", LogSettings(segment_bytes=64 << 10), incarnation="i")
        for _ in range(30):
            hand.write(only(hand), b"x" * 9000)
        hand.store.close()
    assert format_of_directory(tmp_path) == 1
    heads = {path.read_bytes()[:4] for path in tmp_path.glob("logs/log/0/*.idx")}
    assert heads == {b"AEI1"}
    for path in tmp_path.glob("logs/log/0/*.log"):
        assert not int.from_bytes(path.read_bytes()[12:16], "little") & 8


def test_a_format_that_was_lost_is_taken_for_the_newer_one(tmp_path: Path) -> None:
    open_real(tmp_path).store.close()
    (tmp_path / "format.json").unlink()
    again = open_real(tmp_path)
    assert format_of_directory(tmp_path) == 4
    again.store.close()


def test_a_format_of_the_future_is_refused_in_words(tmp_path: Path) -> None:
    open_real(tmp_path).store.close()
    text = json.dumps({"format": 5, "id": "00"}, sort_keys=True, separators=(",", ":"))
    (tmp_path / "format.json").write_text(f'{{"crc32":{crc32(text.encode())},"content":{text}}}')
    with pytest.raises(StorageError, match="has format 5"):
        open_real(tmp_path)


def test_a_directory_that_cannot_be_marked_takes_no_numbers() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    files.fault = lambda operation, path: 28 if catalog.FORMAT_FILE in str(path) else 0
    with pytest.raises(StorageError):
        hand.store.allow_numbers()
    files.fault = lambda operation, path: 0
    hand.store.allow_numbers()


# -- without the server


def test_producers_are_shown_and_checked_without_the_server(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    partition = hand.store.create(
        "log", LogSettings(partitions=2, segment_bytes=64 << 10), incarnation="i"
    ).partitions[0]
    hand.store.allow_numbers()
    put(hand, partition, "idle", 7, b"x")
    for number in range(40):
        put(hand, partition, "busy", number, b"x" * 9000)
    put(hand, partition, "last", 1, b"only in the journal")
    shown = {
        index: {producer: one.sequence for producer, one in table.items()}
        for index, table in dump_producers(tmp_path, "log", force=True)
    }
    assert shown == {0: {"idle": 7, "busy": 39, "last": 1}, 1: {}}
    hand.store.close()
    counts = Verified()
    assert list(verify(tmp_path, counts=counts)) == []
    assert counts.producers == 3
    assert dict(dump_producers(tmp_path, "log", partition=0))[0] == partition.producers
    with pytest.raises(KeyError):
        list(dump_producers(tmp_path, "log", partition=2))


def test_an_index_that_disagrees_about_a_producer_is_found(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    hand.store.allow_numbers()
    put(hand, partition, "p", 7, b"x")
    hand.store.close()
    (segment,) = tmp_path.glob("logs/log/0/*.idx")
    index = segment.read_bytes()
    assert index.count(b"\x07" + bytes(7)) == 1
    changed = index[8:].replace(b"\x07" + bytes(7), b"\x06" + bytes(7))
    seed = json.loads((tmp_path / "logs/log/log.json").read_bytes())["content"]["uid"]
    crc = crc32(changed, record.seed_of(int(seed, 16), 0))
    segment.write_bytes(index[:4] + crc.to_bytes(4, "little") + changed)
    found = list(verify(tmp_path))
    assert [finding.severity for finding in found] == [Severity.WARNING]
    assert "does not agree" in found[0].words
