"""The file system in memory forgets unsynced data, and nothing else."""

import errno
import random
from pathlib import Path

import pytest

from amqp_streams.testing import FaultyFiles

FILE = Path("/d/file")


@pytest.fixture
def files() -> FaultyFiles:
    """Files with a durable folder."""
    files = FaultyFiles()
    files.mkdir(FILE.parent)
    files.fsync_dir(FILE.parent.parent)
    return files


def test_synced_data_in_a_synced_folder_outlives_the_power(files: FaultyFiles) -> None:
    fd = files.open(FILE, create=True)
    files.pwritev(fd, [b"synced"], 0)
    files.fdatasync(fd)
    files.fsync_dir(FILE.parent)
    files.pwritev(fd, [b"not"], 6)
    files.power_loss()
    assert bytes(files.content(FILE)) == b"synced"


def test_a_file_whose_name_was_not_synced_is_lost(files: FaultyFiles) -> None:
    fd = files.open(FILE, create=True)
    files.pwritev(fd, [b"synced"], 0)
    files.fdatasync(fd)
    files.power_loss()
    assert files.paths() == []


def test_a_kill_loses_nothing_but_descriptors_and_locks(files: FaultyFiles) -> None:
    fd = files.lock(FILE)
    assert fd is not None
    assert files.lock(FILE) is None
    files.pwritev(fd, [b"written"], 0)
    files.kill()
    assert bytes(files.content(FILE)) == b"written"
    assert files.lock(FILE) is not None
    with pytest.raises(OSError, match="Bad file"):
        files.pwritev(fd, [b"x"], 0)


def test_part_of_what_was_not_synced_may_survive_sector_by_sector(files: FaultyFiles) -> None:
    fd = files.open(FILE, create=True)
    files.fdatasync(fd)
    files.fsync_dir(FILE.parent)
    files.pwritev(fd, [b"x" * 5120], 0)
    files.power_loss(random.Random(2))
    left = bytes(files.content(FILE))
    sectors = {left[first : first + 512].rstrip(b"\0") for first in range(0, len(left), 512)}
    assert sectors == {b"", b"x" * 512}


def test_a_failed_sync_does_not_work_the_second_time_either(files: FaultyFiles) -> None:
    fd = files.open(FILE, create=True)
    files.fdatasync(fd)
    files.fsync_dir(FILE.parent)
    files.pwritev(fd, [b"lost"], 0)
    files.fault = lambda operation, path: errno.EIO if operation == "fdatasync" else 0
    with pytest.raises(OSError, match="Input/output"):
        files.fdatasync(fd)
    files.fault = lambda operation, path: 0
    files.fdatasync(fd)
    files.power_loss()
    assert bytes(files.content(FILE)).rstrip(b"\0") == b""


def test_a_full_disk_takes_what_fits_and_then_nothing(files: FaultyFiles) -> None:
    files.space = 10
    fd = files.open(FILE, create=True)
    assert files.pwritev(fd, [b"x" * 15], 0) == 10
    with pytest.raises(OSError, match="No space"):
        files.pwritev(fd, [b"x"], 10)
    assert files.pwritev(fd, [b"y"], 0) == 1
    assert files.free_bytes(FILE.parent) == 0
