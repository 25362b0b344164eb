"""Build the distributions of a commit: the source archive, the pure wheel, the wheel with the compiled part.

The wheels are built from the source archive, so a file that it lacks fails the build. The same commit,
compiler, zlib and setuptools give the same bytes, in any folder and at any time.
"""

import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.extracting import extract
from tools.release.archives import contents, normalise_tar, write_wheel
from tools.release.errors import ReleaseError, output
from tools.release.platforms import platform_tags
from tools.release.repository import Repository

PURE_TAG: Final = "py3-none-any"
ABI_TAG: Final = "cp311-abi3"
COMPILED: Final = (
    "amqp_streams/kafka/brokers/_records.abi3.so",
    "amqp_streams/proton/_loops.abi3.so",
)
_HOOK: Final = "import sys; from setuptools import build_meta; print(build_meta.{hook}(sys.argv[1]))"
# The tables of pyproject.toml that make a wheel one of a platform.
_COMPILED_TABLES: Final = ("[[tool.setuptools.ext-modules]]", "[tool.distutils.bdist_wheel]")


def build(repository: Repository, commit: str, folder: Path, work: Path) -> list[Path]:
    """Build a commit into `folder`; the source archive, the pure and the compiled wheel, in this order.

    `work`: an empty folder for the files in between.
    """
    epoch = repository.date(commit)
    source = work / "source"
    source.mkdir(parents=True)
    repository.export(commit, source)
    folder.mkdir(parents=True, exist_ok=True)
    archive = _built(source, "build_sdist", folder, epoch)
    normalise_tar(archive, epoch)
    return [
        archive,
        _pure(_unpacked(archive, work / "pure"), folder, epoch),
        _compiled(_unpacked(archive, work / "compiled"), folder, epoch),
    ]


def reproducible_variables(epoch: int, source: Path) -> dict[str, str]:
    """The variables of a build whose result depends on neither the folder nor the time.

    Debug information would contain the folder, and is three quarters of a library.
    """
    return {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        # Python's own command to link may add the folders of this Python to the library.
        "LDSHARED": "cc -shared",
        "SOURCE_DATE_EPOCH": str(epoch),
        "CFLAGS": f"-g0 -ffile-prefix-map={source}=.",
        "LDFLAGS": "-Wl,-s",
    }


def without_compiled_part(pyproject: str) -> str:
    """Return pyproject.toml without the tables of the compiled part.

    Raises:
        ReleaseError: one of them is missing: the list of tables is outdated.
    """
    for table in _COMPILED_TABLES:
        pattern = re.escape(table) + r"\n(?:(?!\[).*\n)*"
        pyproject, count = re.subn(pattern, "", pyproject)
        if not count:
            message = f"pyproject.toml must have the table {table}"
            raise ReleaseError(message)
    return pyproject


def _pure(source: Path, folder: Path, epoch: int) -> Path:
    project = source / "pyproject.toml"
    project.write_text(without_compiled_part(project.read_text(encoding="utf-8")), encoding="utf-8")
    files = contents(_built(source, "build_wheel", source / "wheel", epoch))
    return write_wheel(files, folder, tags=[PURE_TAG], epoch=epoch)


def _compiled(source: Path, folder: Path, epoch: int) -> Path:
    """The wheel of this platform.

    If no manylinux tag is true for it, it keeps the tag of this machine, and a line says so.
    """
    wheel = _built(source, "build_wheel", source / "wheel", epoch)
    files = contents(wheel)
    for library in COMPILED:
        check_library(files, library)
    return write_wheel(files, folder, tags=wheel_tags(ABI_TAG, wheel), epoch=epoch)


def check_library(files: Mapping[str, bytes], name: str) -> None:
    """Check that a wheel has a library of the stable ABI, which names no folder of this machine.

    Raises:
        ReleaseError: it has not, or the library does.
    """
    if name not in files:
        message = f"the wheel has no {name}: the C compiler failed, or the library uses another ABI"
        raise ReleaseError(message)
    named = [
        folder for folder in {sys.prefix, sys.base_prefix, str(Path.home())} if len(folder) > len("/usr")
    ]
    for folder in named:
        if folder.encode() in files[name]:
            message = f"{name} contains the folder {folder} of this machine, for example as RUNPATH"
            raise ReleaseError(message)


def wheel_tags(abi: str, wheel: Path) -> list[str]:
    """The tags of a wheel with compiled files: for manylinux if that is true, else for this machine."""
    try:
        platforms = platform_tags(wheel)
    except ReleaseError as error:
        platforms = [sysconfig.get_platform().replace("-", "_").replace(".", "_")]
        print(f"{error}\n  The wheel has the tag {platforms[0]}. Package indexes refuse it", file=sys.stderr)
    return [f"{abi}-{one}" for one in platforms]


def _built(source: Path, hook: str, folder: Path, epoch: int) -> Path:
    folder.mkdir(exist_ok=True)
    told = output(
        [sys.executable, "-c", _HOOK.format(hook=hook), str(folder)],
        folder=source,
        variables=reproducible_variables(epoch, source),
    )
    return folder / told.splitlines()[-1]


def _unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        extract(tar, folder)
    [source] = folder.iterdir()
    return source
