"""The lock of commands that read a data directory without a node."""

from pathlib import Path

import pytest

from amqp_streams.errors import DirectoryLockedError
from amqp_streams.storage.offline import unlocked
from tests.amqp_streams.storage.conftest import open_real


@pytest.mark.parametrize("was_opened", [True, False])
def test_a_file_that_is_missing_is_reported_to_the_caller(tmp_path: Path, was_opened: bool) -> None:
    """For example a segment that was removed while a command reads it."""
    if was_opened:
        open_real(tmp_path).store.close()
    with pytest.raises(FileNotFoundError), unlocked(tmp_path, force=False):
        (tmp_path / "no-such-segment").read_bytes()


def test_several_commands_read_at_once_but_not_beside_a_node(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    with pytest.raises(DirectoryLockedError, match="use by process"), unlocked(tmp_path, force=False):
        pytest.fail("a node has the directory open")
    with unlocked(tmp_path, force=True):
        pass
    hand.store.close()
    with unlocked(tmp_path, force=False), unlocked(tmp_path, force=False):
        pass
