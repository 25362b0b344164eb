"""Files that pyproject.toml names are where builds look for them: in the repository and in the container's
build context.
"""

import tomllib
from pathlib import Path

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
