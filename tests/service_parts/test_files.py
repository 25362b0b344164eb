"""Reading a file that a setting names."""

from pathlib import Path

import pytest

from service_parts.errors import SettingError
from service_parts.files import read_file


def test_a_file_has_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 100)
    assert read_file(path, 100) == b"x" * 100
    with pytest.raises(SettingError, match="large is larger than 99 bytes"):
        read_file(path, 99)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read .*nowhere: No such file"):
        read_file(tmp_path / "nowhere", 100)
