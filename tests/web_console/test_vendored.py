"""The files of other projects are the published ones. `make vendored` compares them with the registry."""

import tomllib
from pathlib import Path

from tools.vendored import FOLDER, packages

KNOWN_LICENSES = {"0BSD", "MIT"}


def test_every_script_of_another_project_is_listed_with_its_license() -> None:
    listed = {name for package in packages() for name in package.files}
    ours = {"console.js", "console.css", "icon.svg", "vendored.toml"}
    assert {path.name for path in FOLDER.iterdir()} == listed | ours
    for package in packages():
        assert package.license in KNOWN_LICENSES
        assert any("LICENSE" in name for name in package.files)
        # The published file names its version.
        texts = [(FOLDER / name).read_text() for name in package.files if name.endswith(".js")]
        assert all(package.version in text for text in texts)


def test_the_list_is_valid() -> None:
    assert tomllib.loads((Path(FOLDER) / "vendored.toml").read_text())["package"]
