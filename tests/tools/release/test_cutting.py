"""What a release refuses before it builds anything, and the commit and tag at its end."""

from pathlib import Path

import pytest

from tests.tools.release.conftest import git
from tools.release.__main__ import empty, finish, main
from tools.release.errors import ReleaseError
from tools.release.repository import Repository


def cut(repository: Repository, version: str, *more: str) -> int:
    return main(["--repository", str(repository.root), "cut", version, "--quick", *more])


def test_a_dirty_working_copy_is_refused(small: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    (small.root / "CHANGELOG.md").write_text("# Changelog\n")
    assert cut(small, "1.0.0") == 1
    assert "changes that are not committed: CHANGELOG.md" in capsys.readouterr().err


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    old = [tmp_path / "amqp_event_streams-1.0-py3-none-any.whl", tmp_path / "SHA256SUMS"]
    package = tmp_path / "amqp-streams_1.0-1_amd64.deb"
    for path in [*old, package]:
        path.write_text("x")
    empty(tmp_path)
    assert list(tmp_path.iterdir()) == [package]
    old[0].write_text("x")
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ReleaseError, match=r"files that no build makes \(thesis\.tex\)"):
        empty(tmp_path)
    assert old[0].exists()


def test_a_version_that_has_a_tag_is_refused(small: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    git(small.root, "tag", "v1.0.0")
    assert cut(small, "1.0.0") == 1
    assert "release: the version 1.0.0 exists" in capsys.readouterr().err


def test_a_changelog_without_entries_is_refused(
    small: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    (small.root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    git(small.root, "commit", "--quiet", "--all", "--message=Empty")
    assert cut(small, "1.0.0") == 1
    assert "has no entries under 'Unreleased'" in capsys.readouterr().err


def test_a_build_that_fails_changes_nothing(
    small: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small.root / "pyproject.toml").write_text("not TOML")
    git(small.root, "add", ".")
    git(small.root, "commit", "--quiet", "--message=Broken")
    head = small.resolve("HEAD")
    assert cut(small, "1.0.0", "--tag", "--out", str(tmp_path / "out")) == 1
    assert "ended with 1" in capsys.readouterr().err
    assert small.resolve("HEAD") == head
    assert small.tags() == []
    small.require_clean()


def test_a_tag_is_made_of_the_commit_that_was_built(small: Repository) -> None:
    head = small.resolve("HEAD")
    commit = small.committed({"CHANGELOG.md": "# Changelog\n"}, "Release 1.0.0")
    finish(small, head, commit, "1.0.0", tag=True)
    assert small.resolve("HEAD") == small.resolve("v1.0.0") == commit
    assert (small.root / "CHANGELOG.md").read_text() == "# Changelog\n"
    small.require_clean()


def test_a_branch_that_moved_during_the_build_gets_no_tag(small: Repository) -> None:
    head = small.resolve("HEAD")
    commit = small.committed({"CHANGELOG.md": "# Changelog\n"}, "Release 1.0.0")
    git(small.root, "commit", "--quiet", "--allow-empty", "--message=Meanwhile")
    with pytest.raises(ReleaseError, match="the branch has changed since the build began"):
        finish(small, head, commit, "1.0.0", tag=True)
    assert small.tags() == []
