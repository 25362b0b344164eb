"""A store with a log in it, and ways to put events there."""

from collections.abc import Callable

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage.ports import StoredLog
from amqp_streams.testing import MemoryStore

NOW = 1_700_000_000_000
DATA = b"\x00\x53\x75\xa0"

Append = Callable[..., None]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> StoredLog:
    return store.create("temps", LogSettings(partitions=4), incarnation="first")


@pytest.fixture
def append(store: MemoryStore) -> Append:
    """Put events into a partition, each with its own time."""

    def put(partition: object, *times: int) -> None:
        for time in times:
            # A partition of whatever store.
            partition.append([DATA + b"\x01x"], b"\0", time)  # type: ignore[attr-defined]
            store.commit()

    return put
