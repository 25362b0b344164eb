"""What a release reads from the repository, and the commit that it makes beside the working copy."""

import subprocess
from pathlib import Path

import pytest

from tools.release.errors import ReleaseError
from tools.release.repository import Repository


def test_a_changed_or_new_file_makes_a_working_copy_dirty(small: Repository) -> None:
    small.require_clean()
    (small.root / "new.txt").write_text("x")
    with pytest.raises(ReleaseError, match=r"not committed: new\.txt\. Commit or remove them"):
        small.require_clean()
    (small.root / "new.txt").unlink()
    (small.root / "run.sh").write_text("false\n")
    with pytest.raises(ReleaseError, match=r"run\.sh"):
        small.require_clean()


def test_a_commit_changes_neither_branch_nor_index_nor_files(small: Repository) -> None:
    head = small.resolve("HEAD")
    made = small.committed({"CHANGELOG.md": "# Ä\n", "new/file.txt": "x\n"}, "Release 1.0.0")
    assert small.resolve("HEAD") == head
    small.require_clean()
    assert small.text(made, "CHANGELOG.md") == "# Ä\n"
    assert small.text(made, "new/file.txt") == "x\n"
    assert small.git("show", "--no-patch", "--format=%s%n%P", made) == f"Release 1.0.0\n{head}"
    assert small.git("ls-tree", made, "run.sh").startswith("100755"), "the mode of other files stays"


def test_an_export_has_the_files_of_the_commit_with_plain_modes(small: Repository, tmp_path: Path) -> None:
    (small.root / "not-committed.txt").write_text("x")
    folder = tmp_path / "export"
    folder.mkdir()
    small.export("HEAD", folder)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "CHANGELOG.md": 0o644,
        "amqp_streams": 0o755,
        "run.sh": 0o755,
    }


def test_the_date_is_that_of_the_commit(small: Repository) -> None:
    shown = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=small.root, capture_output=True, text=True, check=True
    )
    assert small.date("HEAD") == int(shown.stdout)


def test_a_git_command_that_fails_names_the_reason(small: Repository) -> None:
    with pytest.raises(ReleaseError, match=r"git show failed: .*nothing"):
        small.text("HEAD", "nothing")
    with pytest.raises(ReleaseError, match="git archive nothing failed"):
        small.export("nothing", small.root)
