"""`make deb`: a Debian package with the node, the gateway, the console and two systemd units.

The package has a virtual environment of its own in /usr/lib/amqp-streams, with all libraries from wheels.
Nothing is downloaded or compiled when it is installed. It needs the Python that it was built with.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Final

from service_parts.extras import DISTRIBUTION
from tools import commands
from tools.release import versions
from tools.release.building import build
from tools.release.errors import ReleaseError, output
from tools.release.proton import build_proton
from tools.release.repository import Repository

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ROOT / "packaging" / "debian"
PACKAGE: Final = "amqp-streams"
HOME: Final = Path("usr/lib/amqp-streams")
EXTRAS: Final = "cloudevents,compression,console,gateway,kafka,node,tracing"
PROGRAMS: Final = ("amqp-streams", "knative-gateway")
CONFIGURATIONS: Final = {
    "node.toml": Path("etc/amqp-streams/node.toml"),
    "gateway.toml": Path("etc/knative-gateway/gateway.toml"),
}
_PYTHON: Final = Path("/usr/bin/python3")
_INSTALLED: Final = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence.pth")
_CONTROL: Final = """\
Package: {package}
Version: {version}
Architecture: {architecture}
Maintainer: the amqp-event-streams maintainers <maintainers@example.org>
Installed-Size: {size}
Depends: {depends}
Recommends: ca-certificates
Section: net
Priority: optional
Description: durable, partitioned event log served over AMQP 1.0
 A node stores events in logs, and any AMQP 1.0 client can send and receive
 them. A gateway serves the resources of Knative Eventing over HTTP, without a
 Kubernetes cluster.
 .
 The package has the services amqp-streams, which is started on loopback, and
 knative-gateway, which an administrator enables.
"""
_DATE: Final = "--date=format-local:%Y%m%d%H%M%S"
_CHANGELOG: Final = """\
{package} ({version}) unstable; urgency=medium

  * The changes of this version are in changelog.gz.

 -- the amqp-event-streams maintainers <maintainers@example.org>  {date}
"""
_COPYRIGHT: Final = """\
Copyright the amqp-event-streams maintainers

amqp-event-streams is licensed under the Apache License 2.0, of which Debian has a copy in
/usr/share/common-licenses/Apache-2.0.

/usr/lib/amqp-streams also contains the following distributions. Their licence texts, and those of the
libraries that their wheels contain, are in /usr/share/doc/amqp-streams/licenses/NAME/.

"""


def debian_version(version: str, *, commit: str, date: str, released: bool, tagged: bool) -> str:
    """The version of the package of a commit. `released`: the version has a tag; `tagged`: on this commit.

    A build that is not a release sorts after the release of its version, or before it if there is none yet.
    """
    upstream = re.sub(r"(?<=\d)(a|b|rc)(?=\d)", r"~\1", version)
    between = "" if tagged else f"{'+' if released else '~'}git{date}.{commit[:7]}"
    return f"{upstream}{between}-1"


def make(repository: Repository, commit: str, folder: Path) -> Path:
    """Build the package of a commit into a folder.

    Raises:
        ReleaseError: a command fails, or this is not a Debian system with its own Python.
    """
    for program, package in (("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev")):
        if shutil.which(program) is None:
            message = f"{program} is missing: apt-get install {package}"
            raise ReleaseError(message)
    if not _PYTHON.exists():
        message = f"{_PYTHON} is missing, which the package uses: apt-get install python3 python3-venv"
        raise ReleaseError(message)
    epoch = repository.date(commit)
    with tempfile.TemporaryDirectory(prefix="deb-") as name:
        work = Path(name)
        tree = work / "tree"
        tree.mkdir(mode=0o755)
        source = work / "source"
        source.mkdir()
        # Not the working copy, which may be of another commit or have changes.
        repository.export(commit, source)
        _install(repository, commit, work, tree, source)
        version = _version(repository, commit)
        files(tree, source, version, epoch)
        _licenses(tree)
        _control(tree, work, source, version)
        target = folder / _name(tree)
        folder.mkdir(parents=True, exist_ok=True)
        variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", str(tree), str(target)]
        output(command, variables=variables)
    return target


def _version(repository: Repository, commit: str) -> str:
    version = versions.current(repository.text(commit, versions.FILE))
    tag = f"{versions.TAG_PREFIX}{version}"
    released = tag in repository.tags()
    return debian_version(
        version,
        commit=commit,
        date=repository.git("show", "--no-patch", "--format=%cd", _DATE, commit, variables={"TZ": "UTC"}),
        released=released,
        tagged=released and repository.resolve(tag) == commit,
    )


def _install(repository: Repository, commit: str, work: Path, tree: Path, source: Path) -> None:
    """Install the wheels of the commit into the package's environment, and make it independent of `tree`."""
    wheels = work / "wheels"
    *_, compiled = build(repository, commit, wheels, work / "build")
    license_text = (source / "LICENSE").read_bytes()
    proton = build_proton(wheels, work / "proton", license_text=license_text, epoch=repository.date(commit))
    home = tree / HOME
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    output([str(_PYTHON), "-m", "venv", str(home)], variables=variables)
    options = pip_options(compiled, proton, source / "constraints.txt")
    output([str(home / "bin" / "python3"), "-m", "pip", "install", *options], variables=variables)
    for path in [*(home / "bin").iterdir()]:
        if path.name not in PROGRAMS and not path.name.startswith("python"):
            path.unlink()
    for program in PROGRAMS:
        script = home / "bin" / program
        lines = script.read_text().splitlines(keepends=True)
        script.write_text("".join([f"#!/{HOME}/bin/python3\n", *lines[1:]]))
    [packages] = home.glob("lib/python*/site-packages")
    for path in packages.iterdir():
        if path.name.partition("-")[0] in _INSTALLED or path.name in _INSTALLED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    forget_origins(packages)
    for path in packages.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    shutil.rmtree(home / "include", ignore_errors=True)
    # Compiled files do not depend on times: the services cannot write them, and each start would compile.
    flags = ["-q", "-s", str(tree), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    output([str(_PYTHON), "-m", "compileall", *flags, str(packages)], variables=variables)


def pip_options(wheel: Path, proton: Path, constraints: Path) -> list[str]:
    """What pip installs: exactly these two files, and their libraries from the index.

    By their paths: of a name, pip would take the latest version, also one of another publisher.
    """
    wheels = [f"{DISTRIBUTION}[{EXTRAS}] @ {wheel.absolute().as_uri()}", str(proton.absolute())]
    return ["--quiet", "--no-compile", "--only-binary", ":all:", "--constraint", str(constraints), *wheels]


def forget_origins(packages: Path) -> None:
    """Remove the files that name the folder of this build, which does not exist later."""
    for path in packages.glob("*.dist-info/direct_url.json"):
        path.unlink()
        record = path.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text(
            "".join(line for line in lines if "/direct_url.json," not in line), encoding="utf-8"
        )


def files(tree: Path, source: Path, version: str, epoch: int) -> None:
    """The files outside of the environment: programs, units, configuration, manual pages, changelog."""
    units = source / SOURCES.relative_to(ROOT)
    (tree / "usr/bin").mkdir(parents=True)
    for program in PROGRAMS:
        (tree / "usr/bin" / program).symlink_to(f"../lib/amqp-streams/bin/{program}")
        _copied(units / f"{program}.service", tree / "lib/systemd/system" / f"{program}.service")
    for name, target in CONFIGURATIONS.items():
        _copied(units / name, tree / target)
    manual = tree / "usr/share/man/man1"
    manual.mkdir(parents=True)
    for program in PROGRAMS:
        for one in commands.commands(program):
            text = commands.man_page(one)
            _compressed(manual / f"{commands.man_name(one)}.1.gz", text, epoch)
    documents = tree / "usr/share/doc" / PACKAGE
    documents.mkdir(parents=True)
    entry = _CHANGELOG.format(package=PACKAGE, version=version, date=format_datetime(_moment(epoch)))
    _compressed(documents / "changelog.Debian.gz", entry, epoch)
    _compressed(documents / "changelog.gz", (source / "CHANGELOG.md").read_text(encoding="utf-8"), epoch)


def _moment(epoch: int) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


def _licenses(tree: Path) -> None:
    """Copy the licence files of every distribution, and list them in the copyright file."""
    documents = tree / "usr/share/doc" / PACKAGE
    rows = []
    [packages] = (tree / HOME).glob("lib/python*/site-packages")
    found = sorted(packages.glob("*.dist-info"), key=lambda path: path.name.lower())
    for info in found:
        one: Distribution = PathDistribution(info)
        texts = [path for path in info.rglob("*") if path.is_file() and _is_license(path.name)]
        if not texts:
            message = f"{info.name} has no licence file: add its licence to the package"
            print(f"deb: {message}", file=sys.stderr)
        for text in texts:
            _copied(text, documents / "licenses" / one.metadata["Name"] / text.name)
        rows.append(f"{one.metadata['Name']} {one.version}: {_license(one)}\n")
    (documents / "copyright").write_text(_COPYRIGHT + "".join(rows), encoding="utf-8")


def _is_license(name: str) -> bool:
    return re.match(r"(?i)(licen[cs]e|copying|notice|authors|third.?party)", name) is not None


def _license(one: Distribution) -> str:
    """What a distribution says of its licence, in one line."""
    metadata = one.metadata
    classifiers = [
        value.rpartition(" :: ")[2]
        for value in metadata.get_all("Classifier") or []
        if value.startswith("License :: ")
    ]
    given = next(
        (value for key in ("License-Expression", "License") for value in metadata.get_all(key) or []),
        "",
    )
    given = given if metadata.get_all("License-Expression") or not classifiers else ", ".join(classifiers)
    return given.strip().splitlines()[0] if given.strip() else "see its licence file"


def _control(tree: Path, work: Path, source: Path, version: str) -> None:
    control = tree / "DEBIAN"
    control.mkdir(mode=0o755)
    major, minor = map(int, _python_version().split("."))
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    values = {
        "package": PACKAGE,
        "version": version,
        "architecture": output(["dpkg", "--print-architecture"], variables=os.environ).strip(),
        "size": size // 1024,
        "depends": f"adduser, init-system-helpers (>= 1.52), python3 (>= {major}.{minor}),"
        f" python3 (<< {major}.{minor + 1}), {_libraries(tree, work)}",
    }
    (control / "control").write_text(_CONTROL.format(**values))
    (control / "conffiles").write_text("".join(f"/{path}\n" for path in CONFIGURATIONS.values()))
    for name in ("postinst", "prerm", "postrm"):
        _copied(source / SOURCES.relative_to(ROOT) / name, control / name, mode=0o755)
    found = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in found
        if control not in path.parents
    ]
    (control / "md5sums").write_text("".join(sums))


def _python_version() -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return output([str(_PYTHON), "-c", code], variables=os.environ).strip()


def _libraries(tree: Path, work: Path) -> str:
    """The Debian packages whose libraries the compiled modules use."""
    (work / "debian").mkdir(exist_ok=True)
    (work / "debian" / "control").write_text(f"Source: {PACKAGE}\n\nPackage: {PACKAGE}\nArchitecture: any\n")
    modules = [str(path) for path in tree.rglob("*.so*") if path.is_file()]
    # Libraries that a wheel contains for its own modules.
    bundled = {f"-l{path.parent}" for path in tree.rglob("*.libs/*.so*")}
    told = output(
        ["dpkg-shlibdeps", "-O", "--ignore-missing-info", *sorted(bundled), *modules],
        folder=work,
        variables=os.environ,
    )
    return told.strip().removeprefix("shlibs:Depends=")


def _name(tree: Path) -> str:
    fields = dict(
        line.split(": ", 1) for line in (tree / "DEBIAN/control").read_text().splitlines() if ": " in line
    )
    return f"{fields['Package']}_{fields['Version']}_{fields['Architecture']}.deb"


def _copied(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _compressed(target: Path, text: str, epoch: int) -> None:
    done = subprocess.run(["gzip", "-9", "--no-name"], input=text.encode(), capture_output=True, check=True)
    target.write_bytes(done.stdout)
    target.chmod(0o644)
    os.utime(target, (epoch, epoch))


def main() -> int:
    """Build the package of a commit; the exit status."""
    parser = argparse.ArgumentParser(prog="deb", description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", help="a commit or tag (default: HEAD)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dist", help="(default: build/dist)")
    arguments = parser.parse_args()
    os.umask(0o022)
    repository = Repository(ROOT)
    try:
        package = make(repository, repository.resolve(arguments.commit), arguments.out)
    except ReleaseError as error:
        print(f"deb: {error}", file=sys.stderr)
        return 1
    print(f"deb: {package}: {package.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
