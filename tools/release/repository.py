"""The repository of a release: its state, and a commit that changes no file of the working copy."""

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.extracting import extract
from tools.release.errors import ReleaseError

_FILE_MODE: Final = 0o644
_FOLDER_MODE: Final = 0o755


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository with its working copy in `root`."""

    root: Path

    def git(self, *words: str, given: str | None = None, variables: Mapping[str, str] | None = None) -> str:
        """Run a Git command, with a text as its input; what it prints.

        Raises:
            ReleaseError: the command fails.
        """
        done = subprocess.run(
            ["git", *words],
            cwd=self.root,
            input=given,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            message = f"git {words[0]} failed: {done.stderr.strip()}"
            raise ReleaseError(message)
        return done.stdout.removesuffix("\n")

    def require_clean(self) -> None:
        """Check that the working copy is what was committed, and has no file that Git does not know.

        Raises:
            ReleaseError: with the files that differ.
        """
        changed = self.git("status", "--porcelain").splitlines()
        if changed:
            listed = ", ".join(line[3:] for line in changed[:5]) + (", …" if len(changed) > 5 else "")
            message = f"the working copy has changes that are not committed: {listed}. Commit or remove them"
            raise ReleaseError(message)

    def resolve(self, name: str) -> str:
        """The id of a commit."""
        return self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")

    def date(self, commit: str) -> int:
        """When a commit was made, in seconds since 1970: SOURCE_DATE_EPOCH of its build."""
        return int(self.git("show", "--no-patch", "--format=%ct", commit))

    def tags(self) -> list[str]:
        """The tags of the repository."""
        return self.git("tag", "--list").splitlines()

    def text(self, commit: str, file: str) -> str:
        """The text of a file in a commit."""
        return self.git("show", f"{commit}:{file}") + "\n"

    def committed(self, files: Mapping[str, str], message: str) -> str:
        """Make a commit after HEAD with new texts for some files; its id.

        Neither the branch nor the working copy nor the index change.
        """
        with tempfile.TemporaryDirectory(prefix="release-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self.git("read-tree", "HEAD", variables=index)
            for name, text in files.items():
                blob = self.git("hash-object", "-w", "--stdin", given=text)
                self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", variables=index)
            tree = self.git("write-tree", variables=index)
        return self.git("commit-tree", tree, "-p", "HEAD", "-m", message)

    def export(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into a folder, with the same modes on every machine."""
        archive = subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=self.root, capture_output=True, check=False
        )
        if archive.returncode:
            message = f"git archive {commit} failed: {archive.stderr.decode(errors='replace')}"
            raise ReleaseError(message)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            extract(tar, folder)
        for path in (folder, *folder.rglob("*")):
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(_FOLDER_MODE if runs else _FILE_MODE)
