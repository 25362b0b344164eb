"""Archives, also with a Python that has no filters for them."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.extracting import extract


def archive(**kinds: bytes) -> tarfile.TarFile:
    """An archive with a file, and with entries of these kinds by name; links lead to /etc/passwd."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as written:
        data = tarfile.TarInfo("folder/file")
        data.size = 2
        written.addfile(data, io.BytesIO(b"ab"))
        for name, kind in kinds.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            written.addfile(entry)
    made.seek(0)
    return tarfile.open(fileobj=made)


@pytest.fixture(params=["with filters", "without"], autouse=True)
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python with its filters, and as it was before 3.11.4."""
    if request.param == "with filters":
        if not hasattr(tarfile, "data_filter"):
            pytest.skip("this Python has no filters for archives")
        return
    whole = tarfile.TarFile.extractall

    def extractall(self: tarfile.TarFile, path: Path) -> None:
        options: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "tar_filter") else {}
        whole(self, path, **options)

    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)


def test_all_of_an_archive_is_extracted(tmp_path: Path) -> None:
    with archive() as made:
        extract(made, tmp_path)
    assert (tmp_path / "folder" / "file").read_bytes() == b"ab"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../out", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("link", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
    ],
)
def test_nothing_leaves_the_folder(tmp_path: Path, name: str, kind: bytes) -> None:
    with archive(**{name: kind}) as made, pytest.raises(tarfile.TarError):
        extract(made, tmp_path / "inside")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "inside" / name).is_symlink()
