"""What the tests of changes do with a store whose threads work when the test says so."""

from collections.abc import Callable
from errno import EIO
from pathlib import Path

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.ports import Partition
from amqp_streams.storage.questions import Delete
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, Hand, open_inline
from tests.amqp_streams.storage.held import HeldHand, open_held

SETTINGS = LogSettings(segment_bytes=64 << 10, segment_ms=1000, retention_ms=1000)
DELETE = Delete("log")
Fault = Callable[[str, Path], int]


def opened(files: FaultyFiles | None = None, *, events: int = 3) -> tuple[HeldHand, Partition]:
    """A store with a log, some events of which retention has removed, and another log."""
    hand = open_held(files or FaultyFiles())
    partition = hand.store.create("log", SETTINGS, incarnation="1").partitions[0]
    hand.store.create("other", LogSettings(), incarnation="o")
    for number in range(events):
        append(hand, partition, b"x" * 5000, now_ms=NOW + 500 * number)
    hand.store.apply_retention(NOW + 500 * events + 1000)
    hand.work()
    return hand, partition


def append(hand: HeldHand, partition: Partition, *messages: bytes, now_ms: int = NOW) -> None:
    partition.append(list(messages), bytes(len(messages)), now_ms)
    hand.commit_all()
    assert not hand.done[-1].failures


def to_the_disk(hand: HeldHand) -> None:
    """Let the writer come to the deletion, so that it is the keeper's turn."""
    hand.held.writer.run()
    hand.loop.run_ready()


def fails(operation: str, folder: str, error: int = EIO) -> Fault:
    """Let an operation fail in a folder of the data directory."""
    return lambda each, path: error if each == operation and folder in path.parts else 0


def crash(hand: Hand, files: FaultyFiles, *, power: bool) -> DirectoryStore:
    """Kill the process or the machine, and open the store again: nothing is damaged."""
    (files.power_loss if power else files.kill)()
    hand.loop.run_ready = lambda: 0  # type: ignore[method-assign]  # its loop has ended as well
    store = open_inline(files).store
    assert isinstance(store, DirectoryStore)
    assert not [each for each in store.findings if each.severity is Severity.DAMAGE]
    return store
