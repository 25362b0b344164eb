"""States: the contract of each store, and the data directory on a disk that fails."""

import errno
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams.config import LogSettings, Sync
from amqp_streams.errors import StorageError
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.formats import state_record
from amqp_streams.storage.states import DAMAGED_FILE, FILE
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import ROOT, Hand, open_inline, open_real
from tests.properties import examples

PATH = ROOT / FILE
Write = dict[str, bytes | None]

writes = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.binary(max_size=700), max_size=4), max_size=12
)


def findings(hand: Hand) -> list[tuple[Severity, int | None]]:
    assert isinstance(hand.store, DirectoryStore)
    return [(finding.severity, finding.position) for finding in hand.store.findings if finding.file == FILE]


def everything(hand: Hand) -> dict[str, bytes]:
    return dict(hand.store.states.items(""))


def apply(values: dict[str, bytes], changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    merged = values | {key: value for key, value in changes.items() if value is not None}
    return {key: value for key, value in merged.items() if changes.get(key, value) is not None}


def killed(files: FaultyFiles) -> Hand:
    """The process ended, and another one opens its directory."""
    files.kill()
    return open_inline(files)


# -- the data directory


@pytest.mark.parametrize("sync", ["always", "interval:5", "never"])
def test_states_are_there_when_the_directory_is_opened_again(tmp_path: Path, sync: str) -> None:
    expected: dict[str, bytes] = {}
    for turn in range(3):
        hand = open_real(tmp_path, sync=Sync.parse(sync))
        assert everything(hand) == expected
        assert findings(hand) == []
        for number in range(30):
            changes: Write = {f"{number % 7}": b"%d" % number * 50, f"{turn}": None}
            expected = apply(expected, changes)
            hand.store.states.write(changes)
        hand.store.close()


@settings(max_examples=examples(60))
@given(writes, st.booleans())
def test_closed_or_killed_what_ended_is_there(writes: list[Write], close: bool) -> None:
    files, expected = FaultyFiles(), dict[str, bytes]()
    hand = open_inline(files)
    for changes in writes:
        assert hand.keep(changes) is None
        expected = apply(expected, changes)
    if close:
        hand.store.close()
    again = killed(files)
    assert (everything(again), findings(again)) == (expected, [])


def test_wherever_the_last_write_was_torn_it_counts_as_not_made(tmp_path: Path) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    hand.keep({"a": b"1", "b": b"2"})
    before = len(files.content(PATH))
    hand.keep({"a": None, "b": b"3" * 30, "c": b"4"})
    whole = bytes(files.content(PATH))
    for cut in range(before, len(whole)):
        files.damage(PATH, lambda data, cut=cut: data.__setitem__(slice(None), whole[:cut]))  # type: ignore[misc]
        again = killed(files)
        assert everything(again) == {"a": b"1", "b": b"2"}
        assert findings(again) == ([(Severity.NOTE, before)] if cut > before else [])
        assert len(files.content(PATH)) == before
        again.keep({"d": b"after"})
        assert everything(killed(files)) == {"a": b"1", "b": b"2", "d": b"after"}


def test_an_incomplete_end_of_a_cleanly_closed_directory_is_damage_even_without_a_torn_record() -> None:
    for torn in (0, 3):
        files = FaultyFiles()
        hand = open_inline(files)
        hand.keep({"a": b"1"})
        before = len(files.content(PATH))
        hand.keep({"a": b"2"})
        hand.store.close()
        files.damage(PATH, lambda data, end=before + torn: data.__delitem__(slice(end, None)))  # type: ignore[misc]
        again = killed(files)
        assert everything(again) == {"a": b"1"}
        assert findings(again) == [(Severity.DAMAGE, before)]
        assert len(files.content(ROOT / DAMAGED_FILE)) == before + torn


def test_damage_in_the_middle_is_reported_and_everything_after_it_is_read() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    places = [len(files.content(PATH))]
    for number in range(5):
        hand.keep({f"{number}": b"%d" % number, "last": b"%d" % number})
        places.append(len(files.content(PATH)))
    files.damage(PATH, lambda data: data.__setitem__(places[2] + 30, data[places[2] + 30] ^ 1))
    damaged = bytes(files.content(PATH))
    again = killed(files)
    assert findings(again) == [(Severity.DAMAGE, places[2])]
    assert everything(again) == {"0": b"0", "1": b"1", "3": b"3", "4": b"4", "last": b"4"}
    assert bytes(files.content(ROOT / DAMAGED_FILE)) == damaged
    once_more = killed(files)
    assert findings(once_more) == []
    assert everything(once_more) == everything(again)


def test_a_missing_file_is_damage_unless_there_never_was_one() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    assert findings(hand) == []
    hand.keep({"a": b"1"})
    hand.store.close()
    files.unlink(PATH)
    files.fsync_dir(ROOT)
    again = killed(files)
    assert findings(again) == [(Severity.DAMAGE, None)]
    assert again.keep({"a": b"2"}) is None


def test_the_file_of_another_directory_keeps_the_store_closed_with_a_remedy() -> None:
    files = FaultyFiles()
    open_inline(files).store.close()
    files.damage(PATH, lambda data: data.__setitem__(slice(None), state_record.encode_head(7)))
    with pytest.raises(
        StorageError, match=r"states belongs to another data directory: restore the right file"
    ):
        killed(files)


def test_a_file_with_mostly_dead_entries_is_rewritten() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    sizes: list[int] = []
    for number in range(400):
        assert hand.keep({"often": b"%d" % number * 20, f"{number % 5}": b"x" * 50}) is None
        sizes.append(len(files.content(PATH)))
    assert max(sizes) < 2048 + 300
    assert everything(killed(files)) == everything(hand)
    big = {f"big {number}": bytes(500) for number in range(40)}
    hand = killed(files)
    hand.keep(big)
    for number in range(100):
        hand.keep({"often": b"%d" % number})
    assert 20_000 < len(files.content(PATH)) < 45_000, "what is alive is not written again and again"


# -- failures


@pytest.fixture
def failing() -> Iterator[tuple[FaultyFiles, Hand]]:
    files = FaultyFiles()
    hand = open_inline(files)
    hand.store.create("log", LogSettings(), incarnation="i")
    assert hand.keep({"a": b"1"}) is None
    yield files, hand
    files.fault = lambda operation, path: 0
    hand.store.close()


def break_on(files: FaultyFiles, operation: str, number: int = errno.EIO) -> None:
    files.fault = lambda now, path: number if now == operation and path.name.startswith(FILE) else 0


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync"])
def test_a_write_that_failed_goes_with_the_next_into_a_new_file(
    failing: tuple[FaultyFiles, Hand], operation: str
) -> None:
    files, hand = failing
    old = files._find(PATH)
    break_on(files, operation)
    error = hand.keep({"b": b"2"})
    assert isinstance(error, StorageError)
    assert str(error) == "/data/states: Input/output error"
    assert hand.store.states.get("b") == b"2"
    break_on(files, "nothing")
    synced: list[object] = []
    files.fault = lambda now, path: (synced.append(files._find(path)) or 0) if now == "fdatasync" else 0  # type: ignore[func-returns-value]
    assert hand.keep({"c": b"3"}) is None
    assert old not in synced, "a failed sync is never tried again"
    assert files._find(PATH) is not old
    assert everything(killed(files)) == {"a": b"1", "b": b"2", "c": b"3"}


@pytest.mark.parametrize("operation", ["open", "pwritev", "fdatasync", "rename", "fsync_dir"])
def test_while_the_disk_fails_every_write_says_so_and_nothing_durable_is_lost(
    failing: tuple[FaultyFiles, Hand], operation: str
) -> None:
    files, hand = failing
    break_on(files, "fdatasync")
    assert hand.keep({"b": b"2"})
    files.fault = lambda now, path: (
        errno.EIO if now == operation and (path.name.startswith(FILE) or path == ROOT) else 0
    )
    for number in range(3):
        assert hand.keep({"c": b"%d" % number})
    files.fault = lambda now, path: 0
    assert hand.keep({"d": b"4"}) is None
    files.power_loss()
    assert everything(open_inline(files)) == {"a": b"1", "b": b"2", "c": b"2", "d": b"4"}


def test_a_full_disk_refuses_and_recovers_and_leaves_no_temporary_files(
    failing: tuple[FaultyFiles, Hand],
) -> None:
    files, hand = failing
    files.space = files._used() + 10
    for _ in range(3):
        assert "No space left" in str(hand.keep({"b": b"x" * 5000}))
    files.space = None
    break_on(files, "pwritev", errno.ENOSPC)
    assert "No space left" in str(hand.keep({}))
    assert not [path for path in files.paths() if path.suffix == ".tmp"]
    break_on(files, "nothing")
    assert hand.keep({}) is None
    assert everything(killed(files)) == {"a": b"1", "b": b"x" * 5000}


def test_a_failure_of_states_disturbs_no_log(failing: tuple[FaultyFiles, Hand]) -> None:
    files, hand = failing
    break_on(files, "fdatasync")
    assert hand.keep({"b": b"2"})
    partition = hand.store.logs["log"].partitions[0]
    assert hand.write(partition, b"event") == 0
    assert partition.facts().failure is None


def test_closing_writes_what_a_failure_left_behind(failing: tuple[FaultyFiles, Hand]) -> None:
    files, hand = failing
    break_on(files, "pwritev")
    assert hand.keep({"b": b"2"})
    files.fault = lambda now, path: 0
    hand.store.close()
    again = killed(files)
    assert (everything(again), findings(again)) == ({"a": b"1", "b": b"2"}, [])


def test_a_directory_whose_states_could_not_be_written_was_not_closed_in_order(
    failing: tuple[FaultyFiles, Hand],
) -> None:
    files, hand = failing
    break_on(files, "pwritev")
    assert hand.keep({"b": b"2"})
    hand.store.close()
    files.fault = lambda now, path: 0
    again = killed(files)
    assert (everything(again), findings(again)) == ({"a": b"1"}, [])


def test_a_full_disk_at_opening_keeps_read_data_until_space_is_available() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    for number in range(4):
        hand.keep({f"{number}": b"x"})
    files.damage(PATH, lambda data: data.__setitem__(50, data[50] ^ 1))
    files.fault = lambda now, path: errno.ENOSPC if now == "pwritev" and path.name.startswith(FILE) else 0
    again = killed(files)
    assert len(everything(again)) == 3
    assert again.keep({"more": b"y"})
    files.fault = lambda now, path: 0
    assert again.keep({}) is None
    assert everything(killed(files)).keys() == everything(again).keys()


def test_states_found_at_opening_are_synced_before_use() -> None:
    """Otherwise a power loss could still remove state that a node has already reported to others."""
    files = FaultyFiles()
    open_inline(files, sync=Sync.parse("never")).keep({"a": b"1"})
    assert killed(files).store.states.get("a") == b"1"
    files.power_loss()
    assert open_inline(files).store.states.get("a") == b"1"


def test_a_failed_sync_with_an_interval_rewrites_everything(tmp_path: Path) -> None:
    files = FaultyFiles()
    hand = open_inline(files, sync=Sync.parse("interval:1000"))
    assert isinstance(hand.store, DirectoryStore)
    hand.keep({"a": b"1"})
    old = hand.store.states._file
    assert old is not None
    hand.store._lazy_sync_failed(old, OSError(errno.EIO, "gone"))
    hand.keep({"b": b"2"})
    files.power_loss()
    assert everything(open_inline(files)) == {"a": b"1", "b": b"2"}, "a new file is synced in any mode"


@pytest.mark.parametrize("seed", range(30))
def test_a_write_survives_a_power_loss_completely_or_not_at_all(seed: int) -> None:
    """Sectors of the disk are kept or lost at random, in each sync mode. Only with `always` must completed
    writes be present.
    """
    rng = random.Random(seed)
    files, sync = FaultyFiles(), Sync.parse(rng.choice(["always", "never", "interval:1000"]))
    hand = open_inline(files, sync=sync)
    for number in range(rng.randint(1, 40)):
        hand.keep(
            {"a": b"%d" % number, "b": b"%d" % number, f"{number % 3}": rng.randbytes(rng.choice([5, 900]))}
        )
    files.power_loss(rng)
    again = open_inline(files, sync=sync)
    assert again.store.states.get("a") == again.store.states.get("b")
    if str(sync) == "always":
        assert again.store.states.get("a") == b"%d" % number
    assert Severity.DAMAGE not in [severity for severity, _ in findings(again)]


@pytest.mark.parametrize("seed", range(40))
def test_successful_writes_survive_any_failure_and_power_loss(seed: int) -> None:
    """Errors at any operation, short writes; each opening finds the values as after the last write that ended
    well, or a later one.
    """
    rng = random.Random(seed)
    files, states = FaultyFiles(), [dict[str, bytes]()]
    faults = [errno.EIO, errno.ENOSPC, -1]
    for _ in range(6):
        files.fault = lambda operation, path: 0
        hand = open_inline(files)
        assert everything(hand) in states
        assert Severity.DAMAGE not in [severity for severity, _ in findings(hand)]
        states, chance = [everything(hand)], rng.choice([0.0, 0.1, 0.5])

        def fault(operation: str, path: Path, chance: float = chance) -> int:
            ours = path.name.startswith(FILE) or (operation == "fsync_dir" and path == ROOT)
            number = rng.choice(faults) if ours and rng.random() < chance else 0
            return 0 if number < 0 and operation != "pwritev" else number

        files.fault = fault
        for number in range(rng.randint(1, 30)):
            changes: Write = {f"{rng.randrange(6)}": rng.randbytes(rng.choice([3, 800])) for _ in range(3)}
            changes["n"] = b"%d" % number
            states.append(apply(states[-1], changes))
            if hand.keep(changes) is None:
                del states[:-1]
        files.power_loss(rng)
