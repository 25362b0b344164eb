"""Archives with the same content have the same bytes, and installers accept them."""

import csv
import io
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from tools.release.archives import contents, normalise_tar, write_wheel
from tools.release.errors import ReleaseError

EPOCH = 1_700_000_000
FILES = {
    "thing-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
    "thing-1.0.dist-info/METADATA": b"Name: thing\n",
    "thing-1.0.dist-info/RECORD": b"old\n",
    "thing/a,b.py": b"x = 1\n",
}


def test_the_name_and_the_files_of_a_wheel_follow_from_its_tags(tmp_path: Path) -> None:
    tags = ["cp311-abi3-manylinux_2_17_x86_64", "cp311-abi3-manylinux2014_x86_64"]
    wheel = write_wheel(FILES, tmp_path, tags=tags, build="1x", epoch=EPOCH)
    assert wheel.name == "thing-1.0-1x-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    found = contents(wheel)
    lines = found["thing-1.0.dist-info/WHEEL"].decode().splitlines()
    assert lines == ["Wheel-Version: 1.0", "Build: 1x"] + [f"Tag: {tag}" for tag in sorted(tags)]
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(found["thing-1.0.dist-info/RECORD"].decode()))}
    assert rows.keys() == FILES.keys()
    assert rows["thing-1.0.dist-info/RECORD"] == ["", ""]
    digest = urlsafe_b64encode(sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    assert rows["thing/a,b.py"] == [f"sha256={digest}", "6"]


def test_the_order_of_the_files_and_a_second_rewrite_change_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    first = write_wheel(FILES, folders[0], tags=["py3-none-any"], epoch=EPOCH)
    turned = write_wheel(dict(reversed(FILES.items())), folders[1], tags=["py3-none-any"], epoch=EPOCH)
    again = write_wheel(contents(first), folders[2], tags=["py3-none-any"], epoch=EPOCH)
    assert first.read_bytes() == turned.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o100644}
        assert archive.infolist()[-1].filename.endswith("RECORD")


@pytest.mark.parametrize("files", [{}, {"a-1.dist-info/WHEEL": b"", "b-1.dist-info/WHEEL": b""}])
def test_files_that_are_not_those_of_a_wheel_are_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"one \.dist-info folder"):
        write_wheel(files, tmp_path, tags=["py3-none-any"], epoch=EPOCH)


def test_owner_time_and_order_of_a_source_archive_do_not_count(tmp_path: Path) -> None:
    for name, order, owner in (("a", "xy", 0), ("b", "yx", 1000)):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as tar:
            for each in order:
                entry = tarfile.TarInfo(f"thing/{each}")
                entry.size, entry.mtime, entry.uid, entry.uname = 1, EPOCH + owner, owner, name
                entry.mode = 0o664 if owner else 0o644
                tar.addfile(entry, io.BytesIO(each.encode()))
        normalise_tar(tmp_path / f"{name}.tar.gz", EPOCH)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        assert [(one.name, one.mtime, one.uid, one.mode) for one in tar] == [
            ("thing/x", EPOCH, 0, 0o644),
            ("thing/y", EPOCH, 0, 0o644),
        ]
