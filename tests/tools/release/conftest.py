"""A clone of this repository, and a small repository that has what a release needs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory_folders import folder_in_memory
from tools.release.repository import Repository

ROOT = Path(__file__).parent.parent.parent.parent
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n"


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=maintainers", "-c", "user.email=maintainers@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def small(tmp_path: Path) -> Repository:
    """A repository with the files that a release changes."""
    folder = tmp_path / "small"
    (folder / "amqp_streams").mkdir(parents=True)
    (folder / "amqp_streams" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o775)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "maintainers")
    git(folder, "config", "user.email", "maintainers@example.org")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=First")
    return Repository(folder)


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for clones and builds."""
    with folder_in_memory(tmp_path_factory.mktemp("builds")) as folder:
        yield folder


@pytest.fixture(scope="session")
def clone(memory: Path) -> Repository:
    """This repository as it was committed last."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    folder = memory / "repository"
    git(ROOT, "clone", "--quiet", "--depth=1", "--no-tags", f"file://{ROOT}", str(folder))
    git(folder, "config", "user.name", "maintainers")
    git(folder, "config", "user.email", "maintainers@example.org")
    return Repository(folder)
