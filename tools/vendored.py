"""Compares the files of other projects in the console with their packages in the npm registry.

Needs npm. The console itself does not: the files are in the repository and in the wheel.
"""

import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "web_console" / "static"


@dataclass(frozen=True)
class Package:
    """A package, and its files: by our name the path in the package."""

    name: str
    version: str
    license: str
    files: Mapping[str, str]


def packages() -> list[Package]:
    """Return the packages that the list names."""
    return [Package(**entry) for entry in tomllib.loads((FOLDER / "vendored.toml").read_text())["package"]]


def differences(package: Package) -> list[str]:
    """Return our names of the files that differ from the published package. npm checks the package's hash."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
        packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        with tarfile.open(Path(folder) / packed.stdout.strip().splitlines()[-1]) as archive:
            return [
                ours for ours, theirs in package.files.items() if _published(archive, theirs) != _ours(ours)
            ]


def _published(archive: tarfile.TarFile, path: str) -> bytes | None:
    member = archive.extractfile(f"package/{path}")
    return None if member is None else member.read()


def _ours(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def main() -> None:
    """Compare all packages."""
    different = [name for package in packages() for name in differences(package)]
    print(
        "\n".join(f"{name} is not the published file" for name in different)
        or "all files are the published ones"
    )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
