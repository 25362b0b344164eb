"""Files that pyproject.toml names are where builds look for them: in the repository and in the container's
build context.
"""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

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


def required(name: str, extra: str) -> Iterator[Requirement]:
    """What a distribution requires with an extra: ours as pyproject.toml says now, others as installed."""
    environment = {"extra": extra, "python_version": "3.11", "python_full_version": "3.11.0"}
    own = name == PROJECT["name"]
    more = PROJECT["optional-dependencies"].get(extra, []) if own else importlib.metadata.requires(name) or []
    for one in map(Requirement, [*PROJECT["dependencies"], *more] if own else more):
        if one.marker is None or one.marker.evaluate(environment):
            yield one


def test_make_setup_pins_all_that_dev_needs_and_nothing_else() -> None:
    """It installs the pins without asking what they require, up to the comment that begins with '# Of'."""
    left, seen = [Requirement(f"{PROJECT['name']}[dev]")], set()
    while left:
        one = left.pop()
        for extra in {"", *one.extras}:
            if (one.name, extra) not in seen:
                seen.add((one.name, extra))
                left += required(one.name, extra)
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8").partition("# Of")[0]
    pinned = {canonicalize_name(line.split("==")[0]) for line in text.splitlines()}
    assert pinned == {canonicalize_name(name) for name, _ in seen} - {PROJECT["name"]}


def test_the_page_about_installing_names_every_extra() -> None:
    text = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    extras = PROJECT["optional-dependencies"]
    assert [extra for extra in extras if f"[{extra}]`" not in text and f"`{extra}`" not in text] == []
