"""Rewrite archives so that the same content gives the same bytes."""

import csv
import gzip
import io
import tarfile
import time
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from tools.release.errors import ReleaseError

_EARLIEST: Final = 315532800  # ZIP has no time before 1980
_REGULAR: Final = 0o100644


def normalise_tar(archive: Path, epoch: int) -> None:
    """Rewrite a .tar.gz in place: sorted entries, one time, no owner."""
    with tarfile.open(archive) as tar:
        entries = [(one, tar.extractfile(one)) for one in tar.getmembers()]
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as new:
            for one, content in sorted(entries, key=lambda entry: entry[0].name):
                clean = tarfile.TarInfo(one.name)
                clean.type, clean.size, clean.mtime = one.type, one.size, epoch
                clean.mode = 0o755 if one.isdir() or one.mode & 0o100 else 0o644
                new.addfile(clean, content)
    archive.write_bytes(gzip.compress(made.getvalue(), 9, mtime=epoch))


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def write_wheel(
    files: Mapping[str, bytes], folder: Path, *, tags: Iterable[str], build: str = "", epoch: int
) -> Path:
    """Write a wheel with these files, these tags, and a build tag (which begins with a digit).

    Its WHEEL, RECORD and name follow from the arguments.

    Raises:
        ReleaseError: the files are not those of a wheel.
    """
    tags = sorted(tags)
    information = {name.split("/")[0] for name in files if name.split("/")[0].endswith(".dist-info")}
    if len(information) != 1 or not tags:
        message = f"a wheel has one .dist-info folder and at least one tag (found {information}, {tags})"
        raise ReleaseError(message)
    [info] = information
    head = [
        line
        for line in files[f"{info}/WHEEL"].decode().splitlines()
        if line and not line.startswith(("Tag:", "Build:"))
    ]
    head += [f"Build: {build}"] if build else []
    described = "\n".join([*head, *(f"Tag: {tag}" for tag in tags)]) + "\n"
    record = f"{info}/RECORD"
    new = {name: data for name, data in files.items() if name != record}
    new[f"{info}/WHEEL"] = described.encode()
    new[record] = _record(new, record)
    parts = [info.removesuffix(".dist-info"), *([build] if build else []), _joined(tags)]
    wheel = folder / f"{'-'.join(parts)}.whl"
    moment = time.gmtime(max(epoch, _EARLIEST))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*sorted(new.keys() - {record}), record]:
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = _REGULAR << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, new[name])
    return wheel


def _joined(tags: Iterable[str]) -> str:
    """The tags of a name: each part in its compressed form, for example `py3-none-any`."""
    columns = zip(*(tag.split("-", 2) for tag in tags), strict=True)
    return "-".join(".".join(sorted(set(column))) for column in columns)


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        digest = urlsafe_b64encode(sha256(files[name]).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(files[name])])
    rows.writerow([record, "", ""])
    return text.getvalue().encode()
