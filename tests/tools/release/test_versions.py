"""The next version, and the line of the code that has it."""

from pathlib import Path

import pytest

import amqp_streams
from tools.release import versions
from tools.release.errors import ReleaseError
from tools.release.versions import current, next_version, replaced

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.mark.parametrize("text", ["1.2.0", "1.2.0rc1", "2.0.0", "1.2.0.post1"])
def test_a_later_version_is_accepted(text: str) -> None:
    assert next_version(text, ["v1.1.0", "v1.2.0a1", "nightly", "vague"]) == text


@pytest.mark.parametrize("text", ["", "1.2.0.dev1", "1.2.0+local", "v1.2.0", "01.2.0", "1.2.0-rc1", "latest"])
def test_a_text_that_is_not_a_version_of_a_release_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match="is not a valid version for a release"):
        next_version(text, [])


def test_a_version_that_exists_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"the version 1\.2\.0 exists: its tag is v1\.2\.0"):
        next_version("1.2.0", ["v1.1.0", "v1.2.0"])


def test_a_version_older_than_a_released_one_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"1\.1\.9 is older than 1\.10\.0"):
        next_version("1.1.9", ["v1.2.0", "v1.10.0"])


def test_the_version_is_in_one_line_of_the_code() -> None:
    source = (ROOT / versions.FILE).read_text(encoding="utf-8")
    assert current(source) == amqp_streams.__version__
    assert current(replaced(source, "999.0.0")) == "999.0.0"
    with pytest.raises(ReleaseError, match="must have one line"):
        current("")


def test_the_metadata_take_the_version_from_this_line() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert 'version = {attr = "amqp_streams.__version__"}' in project
