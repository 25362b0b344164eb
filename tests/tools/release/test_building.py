"""The distributions of this repository: what they contain, their tags, and that they can be rebuilt."""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from tools.release.__main__ import main
from tools.release.archives import contents, write_wheel
from tools.release.building import COMPILED, without_compiled_part
from tools.release.checks import SUMS, check_contents, write_sums
from tools.release.errors import ReleaseError
from tools.release.repository import Repository

ROOT = Path(__file__).parent.parent.parent.parent
VERSION = "999.0.0"


def test_the_tables_of_the_compiled_part_are_removed_and_nothing_else() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    left = without_compiled_part(text)
    assert "ext-modules" not in left
    assert "py-limited-api" not in left
    assert left.count("\n[") == text.count("\n[") - 1 - len(COMPILED)
    with pytest.raises(ReleaseError, match="must have the table"):
        without_compiled_part(left)


@pytest.fixture(scope="module")
def built(clone: Repository, memory: Path) -> list[Path]:
    """The distributions of one commit, built twice in other surroundings."""
    folders = []
    for number, (umask, zone) in enumerate([(0o022, "UTC"), (0o077, "Asia/Tokyo")]):
        folder = memory / f"built-{'long-name-' * number}" / "dist"
        folder.parent.mkdir()
        command = [sys.executable, "-m", "tools.release", "--repository", str(clone.root), "build", "--quick"]
        done = subprocess.run(
            [*command, "--out", str(folder)],
            cwd=ROOT,
            env={**os.environ, "TZ": zone, "TMPDIR": str(folder.parent)},
            umask=umask,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        folders.append(folder)
    return folders


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_two_builds_of_a_commit_have_the_same_bytes(built: list[Path]) -> None:
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in built)
    assert len(first) == 3
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_the_tags_are_those_that_the_symbols_allow(built: list[Path]) -> None:
    [pure] = built[0].glob("*-none-any.whl")
    [compiled] = built[0].glob("*-abi3-*.whl")
    assert not set(COMPILED) & set(contents(pure))
    assert b"Tag: py3-none-any\n" in next(
        data for name, data in contents(pure).items() if name.endswith("/WHEEL")
    )
    libraries = b"".join(contents(compiled)[name] for name in COMPILED)
    assert b".debug_info" not in libraries
    needed = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", libraries)}
    named = re.search(r"manylinux_(\d+)_(\d+)_", compiled.name)
    assert named is not None, compiled.name
    assert max(needed) <= (int(named[1]), int(named[2]))


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_missing_and_a_strange_file_are_found(built: list[Path], clone: Repository, tmp_path: Path) -> None:
    [archive] = built[0].glob("*.tar.gz")
    [pure] = built[0].glob("*-none-any.whl")
    version = pure.name.split("-")[1]
    files = clone.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    check_contents(files, archive, [pure], version)
    changed = contents(pure)
    del changed["amqp_streams/py.typed"]
    changed["tests/test_tidy.py"] = b""
    changed[f"amqp_event_streams-{version}.dist-info/METADATA"] = b"Name: x\nVersion: 0.0.1\n"
    wheel = write_wheel(changed, tmp_path, tags=["py3-none-any"], epoch=0)
    with pytest.raises(ReleaseError) as raised:
        check_contents([*files, "web_console/lost.html"], archive, [wheel], version)
    words = str(raised.value)
    assert f"{archive.name} lacks web_console/lost.html\n" in words
    assert f"{wheel.name} lacks amqp_streams/py.typed\n" in words
    assert f"{wheel.name} has tests/test_tidy.py\n" in words
    assert f"{wheel.name} says that it is version 0.0.1, not {version}" in words
    with tarfile.open(archive) as tar:
        assert not [name for name in tar.getnames() if "/tests/" in name]
    with zipfile.ZipFile(wheel) as made:
        assert made.testzip() is None


def test_the_sums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"b")
    (tmp_path / "a.whl").write_bytes(b"a")
    write_sums(tmp_path)
    lines = write_sums(tmp_path).read_text().splitlines()
    assert lines == [f"{sha256(name.encode()).hexdigest()}  {name}.whl" for name in "ab"]
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=tmp_path, check=True)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_release_commits_and_tags_what_it_has_built(
    clone: Repository,
    memory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(memory))
    before = clone.resolve("HEAD")
    words = ["--repository", str(clone.root), "cut", VERSION, "--quick", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert clone.resolve("HEAD") == before
    [commands] = re.findall(r"  git merge --ff-only (\w+)\n  git tag .* (\w+)\n", told)
    assert clone.git("diff", "--name-only", before, commands[0]).split() == [
        "CHANGELOG.md",
        "amqp_streams/__init__.py",
    ]
    names = {path.name.split("-")[1].removesuffix(".tar.gz") for path in (tmp_path / "out").glob("*.*[lz]")}
    assert names == {VERSION}
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=tmp_path / "out", check=True)
    clone.git("merge", "--ff-only", commands[0])
    clone.git("tag", "--annotate", f"v{VERSION}", "--message=x", commands[1])
    assert main(words) == 1
    assert f"release: the version {VERSION} exists: its tag is v{VERSION}\n" in capsys.readouterr().err
