"""What a release has to be: its files, its sums, the verdicts of other projects' checkers, its SBOM."""

import json
import os
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Sequence
from email.parser import BytesParser
from hashlib import sha256
from pathlib import Path
from typing import Final

from tools.release.archives import contents
from tools.release.building import COMPILED
from tools.release.errors import ReleaseError, output

SUMS: Final = "SHA256SUMS"
PACKAGES: Final = frozenset(
    {
        "amqp_streams",
        "event_formats",
        "knative_gateway",
        "pyspark_amqpstreams",
        "service_parts",
        "spark_connector",
        "web_console",
    }
)
_IN_ARCHIVE: Final = (
    "CHANGELOG.md LICENSE README.md SECURITY.md constraints.txt pyproject.toml amqp_streams/proton/_loops.c"
    " amqp_streams/kafka/brokers/_records.c"
)


def check_contents(files: Iterable[str], archive: Path, wheels: Sequence[Path], version: str) -> None:
    """Check what is in the distributions.

    `files`: those of the commit. The wheels have each file of the packages but C sources, and nothing else.

    Raises:
        ReleaseError: with every difference.
    """
    wanted = {name for name in files if name.split("/")[0] in PACKAGES}
    with tarfile.open(archive) as tar:
        found = {name.partition("/")[2] for name in tar.getnames()}
    faults = [f"{archive.name} lacks {name}" for name in sorted((wanted | set(_IN_ARCHIVE.split())) - found)]
    faults += [f"{archive.name} has {name}" for name in sorted(found) if name.startswith(("tests", "tools"))]
    for wheel in wheels:
        faults += _faults_of(wheel, {name for name in wanted if not name.endswith(".c")}, version)
    if faults:
        raise ReleaseError("\n".join(faults))


def _faults_of(wheel: Path, wanted: set[str], version: str) -> list[str]:
    files = contents(wheel)
    info = f"amqp_event_streams-{version}.dist-info"
    expected = wanted | (set(COMPILED) if "abi3" in wheel.name else set())
    found = {name for name in files if not name.startswith(f"{info}/")}
    faults = [f"{wheel.name} lacks {name}" for name in sorted(expected - found)]
    faults += [f"{wheel.name} has {name}" for name in sorted(found - expected)]
    for name in ("licenses/LICENSE", "entry_points.txt", "METADATA"):
        if f"{info}/{name}" not in files:
            faults.append(f"{wheel.name} lacks {info}/{name}")
    metadata = BytesParser().parsebytes(files.get(f"{info}/METADATA", b""))
    if metadata["Version"] != version:
        faults.append(f"{wheel.name} says that it is version {metadata['Version']}, not {version}")
    return faults


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of each file of a folder, as `sha256sum --check` reads it."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return folder / SUMS


def checkers(root: Path, folder: Path) -> Path:
    """Install the checkers of the extra `release` into an environment of their own; its folder of programs.

    They are 60 packages that no test needs, so `.venv` does not have them.
    """
    programs = folder / "bin"
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["optional-dependencies"]["release"]
    installed = folder / "installed.json"
    if not installed.exists() or json.loads(installed.read_text()) != wanted:
        output([sys.executable, "-m", "venv", "--clear", str(folder)], variables=os.environ)
        pins = ["--constraint", str(root / "constraints.txt")]
        command = [str(programs / "python"), "-m", "pip", "install", "--quiet", *pins, *wanted]
        output(command, variables=os.environ)
        installed.write_text(json.dumps(wanted))
    return programs


def check_with_others(programs: Path, archive: Path, ours: Sequence[Path], compiled: Sequence[Path]) -> None:
    """Run twine, check-wheel-contents and abi3audit.

    Raises:
        ReleaseError: one of them finds a fault.
    """
    variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    paths = [str(path) for path in ours]
    for command in (
        ["twine", "check", "--strict", str(archive), *paths],
        # W009: several packages. They are the parts of one product.
        ["check-wheel-contents", "--ignore", "W009", *paths],
        ["abi3audit", "--strict", "--assume-minimum-abi3", "3.11", *map(str, compiled)],
    ):
        output([str(programs / command[0]), *command[1:]], variables=variables)


def write_sbom(programs: Path, environment: Path, target: Path) -> None:
    """Write the CycloneDX document of everything that an environment has installed."""
    python = str(environment / "bin" / "python")
    options = ["--output-reproducible", "--output-format", "JSON", "--output-file", str(target)]
    output([str(programs / "cyclonedx-py"), "environment", *options, python], variables=os.environ)
