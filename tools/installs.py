"""`make installs`: install each extra into an environment of its own, try it, and print what it adds."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service_parts.extras import DISTRIBUTION

ROOT: Final = Path(__file__).parent.parent
_TOOLS: Final = frozenset({"pip", "setuptools", "pkg_resources", "_distutils_hack"})
_LISTED: Final = (
    "import json; from importlib.metadata import distributions; print(json.dumps([one.metadata['Name'] for"
    " one in distributions()]))"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A command of an installation and how it ends. `words`: a part of what it writes."""

    command: Sequence[str]
    status: int = 0
    words: str = ""


_NODE_MISSING: Final = f"serve needs the node extra: pip install '{DISTRIBUTION}[node]'"
_GATEWAY_MISSING: Final = f"serve needs the gateway extra: pip install '{DISTRIBUTION}[gateway]'"
_CLIENT: Final = Trial(
    [
        "python",
        "-c",
        "from amqp_streams.client.blocking import connect; import amqp_streams.cli.commands.send",
    ]
)
_NO_NODE: Final = Trial(["amqp-streams", "serve", "--data-dir", "data"], 2, _NODE_MISSING)
_NO_GATEWAY: Final = Trial(["knative-gateway", "serve"], 2, _GATEWAY_MISSING)
_NODE: Final = Trial(["amqp-streams", "serve", "--data-dir", "data", "--check"], 0, "the settings are valid")
_GATEWAY: Final = Trial(
    ["knative-gateway", "serve", "--state-dir", "state", "--check"], 0, "the settings are valid"
)
_COMPRESSION: Final = Trial(
    ["python", "-c", "from amqp_streams.wire.batched.compression import codec; codec('zstd'); codec('lz4')"]
)
_CONSOLE: Final = Trial(
    [
        "python",
        "-c",
        "from web_console.app import application; import web_console.command, web_console.serving",
    ]
)
_SPARK: Final = Trial(
    ["python", "-c", "import pyspark_amqpstreams, spark_connector.batch, spark_connector.writing.sink"]
)

TRIALS: Final[Mapping[str, Sequence[Trial]]] = {
    "": (_CLIENT, _NO_NODE, _NO_GATEWAY),
    "node": (_CLIENT, _NODE, _NO_GATEWAY),
    "gateway": (_CLIENT, _NODE, _GATEWAY),
    "gateway,tracing": (
        _GATEWAY,
        Trial(["python", "-c", "import opentelemetry.sdk.trace, knative_gateway.tracing"]),
    ),
    "console": (_CLIENT, _CONSOLE, _NO_NODE),
    "compression,node": (_NODE, _COMPRESSION),
    "spark": (_CLIENT, _SPARK, _NO_NODE),
}


class FailedError(Exception):
    """An installation does not do what it is for."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What an environment has beside Python, pip and setuptools."""

    distributions: frozenset[str]
    size: int
    """Bytes, compiled files of Python included."""


def build(folder: Path) -> Path:
    """The wheel, built from the files that git tracks."""
    source = folder / "source"
    for name in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(folder),
            str(source),
        ]
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def install(wheel: Path, extra: str, folder: Path) -> Installation:
    """Install the wheel with an extra into a fresh environment in `folder`.

    Raises:
        FailedError: a command of the installation does not end as it should.
    """
    _run([sys.executable, "-m", "venv", str(folder)])
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    python = folder / "bin" / "python"
    _run(
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--constraint",
            str(ROOT / "constraints.txt"),
            wanted,
        ]
    )
    names = json.loads(_run([str(python), "-c", _LISTED]))
    [packages] = folder.glob("lib/python*/site-packages")
    size = sum(
        file.stat().st_size
        for file in packages.rglob("*")
        if file.is_file() and _counts(file.relative_to(packages))
    )
    for trial in TRIALS[extra]:
        _try(trial, folder)
    return Installation(frozenset(names) - _TOOLS, size)


def _counts(file: Path) -> bool:
    return file.parts[0].partition("-")[0] not in _TOOLS


def _try(trial: Trial, folder: Path) -> None:
    program = str(folder / "bin" / trial.command[0])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [program, *trial.command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != trial.status or trial.words not in done.stdout + done.stderr:
        message = (
            f"{' '.join(trial.command)} ended with {done.returncode} (expected {trial.status} and"
            f" {trial.words!r}): {done.stderr}"
        )
        raise FailedError(message)


def _run(command: Sequence[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"
        raise FailedError(message)
    return done.stdout


def main() -> None:
    """Print a row for each installation."""
    with tempfile.TemporaryDirectory(prefix="installs-") as name:
        folder = Path(name)
        wheel = build(folder)
        print(f"wheel: {wheel.stat().st_size / 1e3:,.0f} kB")
        print("| installation | distributions | MB |\n|---|---|---|")
        for extra in TRIALS:
            found = install(wheel, extra, folder / (extra.replace(",", "-") or "client"))
            title = f"`{DISTRIBUTION}[{extra}]`" if extra else f"`{DISTRIBUTION}`"
            print(f"| {title} | {len(found.distributions)} | {found.size / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
