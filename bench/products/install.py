"""`make peers`: install the products that `make bench` compares with, from package registries only.

    python -m bench.products.install [--only kafka,artemis]

What is there is kept. A product is made beside its place and moved there when it is complete, so an
interrupted run can be repeated. A product that cannot be installed does not stop the others: its reason is
printed, kept for the table of `make bench`, and the exit status is 1.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.products.places import NAMES, PROJECT, failure_file, home, peers_dir
from tools.extracting import extract

HERE: Final = Path(__file__).parent
ARTEMIS: Final = "2.56.0"
QPID_J: Final = "9.2.1"
DEBIAN: Final = "trixie"
SOURCES: Final = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
WORDS_MAX: Final = 400

COMMANDS: Final = {
    "java": "default-jre-headless",
    "mvn": "maven",
    "cc": "gcc",
    "pkg-config": "pkg-config",
    "debootstrap": "debootstrap",
    "go": "golang",
}
"""The command that a step needs, and the Debian package that has it."""


class InstallError(Exception):
    """A product cannot be installed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Install what is missing; 1 if something cannot be installed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.products.install",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STEPS), metavar="NAME,...")
    chosen: list[str] = parser.parse_args(arguments).only
    if unknown := sorted(set(chosen) - set(STEPS)):
        parser.error(f"unknown product {unknown[0]!r}; the products are {', '.join(STEPS)}")
    folder = peers_dir()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"products are installed below {folder}", flush=True)
    failed = [name for name in chosen if not installed(name)]
    for name in failed:
        print(f"not installed: {name}: {failure_file(name).read_text().strip()}", file=sys.stderr)
    return 1 if failed else 0


def installed(name: str) -> bool:
    """Install a product unless it is there; whether it is there now."""
    target, reason = peers_dir() / name, failure_file(name)
    if home(name) is not None:
        print(f"{name}: is there", flush=True)
        return True
    print(f"{name}: installing", flush=True)
    part = target.with_name(name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    try:
        STEPS[name](part)
    except (InstallError, OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        reason.write_text(" ".join(str(error).split())[:WORDS_MAX] + "\n")
        return False
    part.rename(target)
    reason.unlink(missing_ok=True)
    print(f"{name}: installed", flush=True)
    return True


def mirror(files: Sequence[str]) -> str:
    """The package archive that this machine uses, from the texts of its files with sources.

    Raises:
        InstallError: no file names one.
    """
    for text in files:
        if found := re.search(r"^(?:URIs:|deb(?: \[.*?\])?)\s*(http\S+)", text, re.MULTILINE):
            return found[1]
    message = f"no source of Debian packages in {' or '.join(SOURCES)}"
    raise InstallError(message)


def private_root(root: Path, command: Sequence[str]) -> list[str]:
    """The command inside `root`, which sees /proc and /dev there.

    The mounts are in a name space of the command: others never see them, so that removing the folder cannot
    reach the devices of the machine.
    """
    mount = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, str(root), *command]


def _kafka(folder: Path) -> None:
    _need("java", "mvn")
    libs = f"-DoutputDirectory={folder / 'libs'}"
    pom = str(HERE / "kafka" / "pom.xml")
    _run("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime", libs)


def _kafka_load(folder: Path) -> None:
    """Build the load generator apart from the brokers: tests need brokers and no C compiler."""
    _need("cc", "pkg-config")
    _libraries({"rdkafka": "librdkafka-dev"})
    source, flags = str(HERE / "kafka" / "kafka_load.c"), ["-O2", "-g", "-Wall", "-Wextra"]
    _run("cc", *flags, "-o", str(folder / "kafka_load"), source, "-lrdkafka", "-lpthread")


def _artemis(folder: Path) -> None:
    _need("java", "mvn")
    _archive(folder, "org.apache.artemis", "apache-artemis", ARTEMIS)


def _qpid_j(folder: Path) -> None:
    _need("java", "mvn")
    _archive(folder, "org.apache.qpid", "apache-qpid-broker-j", QPID_J)


def _rabbitmq(folder: Path) -> None:
    """Install RabbitMQ 4 of Debian 13 in a root of its own."""
    if os.geteuid() != 0:
        message = "needs root: RabbitMQ runs in a root of its own (chroot)"
        raise InstallError(message)
    _debian_packages({"debootstrap": "debootstrap"}, missing=shutil.which("debootstrap") is None)
    archive = mirror([Path(name).read_text() for name in SOURCES if Path(name).is_file()])
    if not (folder / "etc" / "debian_version").exists() or (folder / "debootstrap").exists():
        _run("debootstrap", "--variant=minbase", DEBIAN, str(folder), archive)
    policy = folder / "usr" / "sbin" / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")  # the package must not start its own service
    policy.chmod(0o755)
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(f"/etc/{name}", folder / "etc" / name)
    install = "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y"
    _run(*private_root(folder, ["sh", "-c", f"{install} --no-install-recommends rabbitmq-server"]))


def _knative(folder: Path) -> None:
    """Build Knative's own data plane; its modules are in go.mod, their checksums in go.sum."""
    _need("go")
    more = {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    _run("go", "build", "-o", str(folder / "knative"), ".", cwd=HERE / "knative", more=more)


STEPS: Final[Mapping[str, Callable[[Path], None]]] = dict(
    zip(NAMES, (_kafka, _kafka_load, _artemis, _qpid_j, _rabbitmq, _knative), strict=True)
)


def _need(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            message = f"needs the command {command}: apt-get install {COMMANDS[command]}"
            raise InstallError(message)


def _libraries(packages: Mapping[str, str]) -> None:
    """Install the packages of the libraries that pkg-config does not find."""
    found = subprocess.run(["pkg-config", "--exists", *packages], check=False).returncode == 0
    _debian_packages(packages, missing=not found)


def _debian_packages(packages: Mapping[str, str], *, missing: bool) -> None:
    if not missing:
        return
    names = list(packages.values())
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        message = f"needs {', '.join(packages)}: apt-get install {' '.join(names)}"
        raise InstallError(message)
    _run("apt-get", "-q", "install", "-y", *names, more={"DEBIAN_FRONTEND": "noninteractive"})


def _archive(folder: Path, group: str, name: str, version: str) -> None:
    """Unpack the binary archive of a Maven artifact."""
    artifact = f"-Dartifact={group}:{name}:{version}:tar.gz:bin"
    _run("mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}")
    archive = folder / f"{name}-{version}-bin.tar.gz"
    with tarfile.open(archive) as files:
        extract(files, folder)
    archive.unlink()


def _run(*command: str, cwd: Path = PROJECT, more: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(more or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        message = f"{command[0]} ended with {done.returncode}: {' '.join(words[-3:])}"
        raise InstallError(message)


if __name__ == "__main__":
    sys.exit(main())
