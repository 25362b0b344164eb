"""Files that pyproject.toml names are where builds look for them: in the repository and in the container's
build context.
"""

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_license_is_the_one_that_the_metadata_name() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text


def test_a_container_build_gets_every_file_that_the_metadata_name() -> None:
    """The build context excludes everything that .dockerignore does not list, and a missing file fails the
    build.
    """
    copied = {
        word
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ")
        for word in line.split()
    }
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for name in (PROJECT["readme"], *PROJECT["license-files"]):
        assert (ROOT / name).is_file()
        assert name in copied
        assert name in allowed


def test_every_constrained_version_accepts_the_oldest_python_of_the_project() -> None:
    """Debian 12 has Python 3.11.2, and pip refuses a library that needs 3.11.5."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if re.match(r"[\w.-]+==", line))
    checked, refusing = 0, []
    for name, version in pinned.items():
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # Only targets such as `make fuzz` install it.
        checked += metadata["Version"] == version
        if not SpecifierSet(metadata["Requires-Python"] or "").contains(oldest):
            refusing.append(f"{name} {metadata['Version']} needs Python {metadata['Requires-Python']}")
    assert refusing == []
    assert checked > len(pinned) // 2
