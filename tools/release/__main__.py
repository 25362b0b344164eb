"""The command line of `make release` and `make dist`."""

import argparse
import os
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tools.release import changelog, checks, versions
from tools.release.building import build
from tools.release.errors import ReleaseError
from tools.release.proton import build_proton
from tools.release.repository import Repository
from tools.release.trying import check_installations
from tools.trials import TrialError

ROOT: Final = Path(__file__).parent.parent.parent
_OURS: Final = re.compile(
    r"(?:amqp_event_streams|python_qpid_proton)-.*\.(?:whl|tar\.gz|cdx\.json)|amqp-streams_.*\.deb"
    r"|NOTES\.md|SHA256SUMS"
)
CHANGELOG: Final = "CHANGELOG.md"


def main(words: list[str] | None = None) -> int:
    """Run a command; the exit status."""
    arguments = _parser().parse_args(words)
    repository = Repository(arguments.repository)
    os.umask(0o022)
    try:
        if arguments.command == "cut":
            _cut(repository, arguments)
        else:
            commit = repository.resolve(arguments.commit)
            folder = arguments.out or repository.root / "build" / "dist"
            _distributions(repository, commit, folder, proton=not arguments.quick)
            _say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    except (ReleaseError, TrialError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--repository", type=Path, default=ROOT, help="the working copy (default: this one)")
    commands = parser.add_subparsers(dest="command", required=True)
    cut = commands.add_parser("cut", help="cut the changelog, build, check and try a version")
    cut.add_argument("version", help="for example 1.2.0 or 1.2.0rc1")
    cut.add_argument("--out", type=Path, help="the folder of the release (default: release/VERSION)")
    cut.add_argument("--tag", action="store_true", help="move the branch to the commit, and make the tag")
    again = commands.add_parser("build", help="build the distributions of a commit, for example of a tag")
    again.add_argument("commit", nargs="?", default="HEAD", help="a commit or tag (default: HEAD)")
    again.add_argument("--out", type=Path, help="the folder of the distributions (default: build/dist)")
    for one in (cut, again):
        one.add_argument(
            "--quick",
            action="store_true",
            help="do nothing that downloads something: no wheel of"
            " Qpid Proton, no checkers of other projects, no installations",
        )
    return parser


def _cut(repository: Repository, arguments: argparse.Namespace) -> None:
    repository.require_clean()
    version = versions.next_version(arguments.version, repository.tags())
    head = repository.resolve("HEAD")
    today = datetime.now(tz=UTC).date().isoformat()
    files = {
        CHANGELOG: changelog.cut(repository.text(head, CHANGELOG), version, today),
        versions.FILE: versions.replaced(repository.text(head, versions.FILE), version),
    }
    commit = repository.committed(files, f"Release {version}")
    _say(f"commit {commit[:12]}: the changelog has {version}, {versions.FILE} has the version")
    folder = arguments.out or repository.root / "release" / version
    _distributions(repository, commit, folder, proton=not arguments.quick)
    (folder / "NOTES.md").write_text(changelog.notes(files[CHANGELOG], version) + "\n", encoding="utf-8")
    if not arguments.quick:
        _checked(repository, folder, version)
    checks.write_sums(folder)
    _say(f"the release is in {folder}")
    finish(repository, head, commit, version, tag=arguments.tag)


def _distributions(repository: Repository, commit: str, folder: Path, *, proton: bool) -> None:
    """Replace a folder by the distributions of a commit, checked for their contents."""
    empty(folder)
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        work = Path(name)
        archive, *wheels = build(repository, commit, folder, work / "build")
        version = versions.current(repository.text(commit, versions.FILE))
        files = repository.git("ls-tree", "-r", "--name-only", commit).splitlines()
        checks.check_contents(files, archive, wheels, version)
        if proton:
            text = (work / "build" / "source" / "LICENSE").read_bytes()
            build_proton(folder, work / "proton", license_text=text, epoch=repository.date(commit))
    for path in sorted(folder.iterdir()):
        _say(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB")


def empty(folder: Path) -> None:
    """Make an empty folder. Files of an earlier build are removed, except Debian packages.

    Raises:
        ReleaseError: the folder has other files, so it may be a folder of the user.
    """
    folder.mkdir(parents=True, exist_ok=True)
    strange = sorted(path.name for path in folder.iterdir() if not _OURS.fullmatch(path.name))
    if strange:
        message = f"{folder} has files that no build makes ({', '.join(strange[:5])}): name another folder"
        raise ReleaseError(message)
    for path in folder.iterdir():
        if path.suffix != ".deb":
            path.unlink()


def _checked(repository: Repository, folder: Path, version: str) -> None:
    programs = checks.checkers(ROOT, ROOT / "build" / "release-checkers")
    [archive] = folder.glob("amqp_event_streams-*.tar.gz")
    ours = sorted(folder.glob("amqp_event_streams-*.whl"))
    checks.check_with_others(programs, archive, ours, sorted(folder.glob("*abi3*.whl")))
    _say("twine, check-wheel-contents and abi3audit found no fault")
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        everything = check_installations(folder, version, Path(name), repository.root, _say)
        checks.write_sbom(programs, everything, folder / f"amqp_event_streams-{version}.cdx.json")


def finish(repository: Repository, head: str, commit: str, version: str, *, tag: bool) -> None:
    """Move the branch from `head` to the commit and make the tag, or print the commands that do.

    Raises:
        ReleaseError: the branch or the working copy has changed since the build began.
    """
    name = f"{versions.TAG_PREFIX}{version}"
    commands = (
        ("merge", "--ff-only", commit),
        ("tag", "--annotate", name, "--message", f"Version {version}", commit),
    )
    if tag:
        if repository.resolve("HEAD") != head:
            message = f"the branch has changed since the build began: begin again, or tag {commit} yourself"
            raise ReleaseError(message)
        repository.require_clean()
        for command in commands:
            repository.git(*command)
        _say(f"the branch is at {commit[:12]}, the tag is {name}. Next: git push --follow-tags")
    else:
        _say("nothing in the repository has changed. To publish exactly what was built, within two weeks:")
        for command in commands:
            words = [f"'{word}'" if " " in word else word for word in command]
            print(f"  git {' '.join(words)}", flush=True)


def _say(line: str) -> None:
    print(f"release: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
