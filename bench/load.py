"""The load generator `bench/amqp/amqp_load`: build it, run it, read its one line of JSON."""

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "amqp"
GENERATOR: Final = FOLDER / "bin" / "amqp_load"
FROM_EARLIEST: Final = ("--es-offset", "@earliest")
FROM_LATEST: Final = ("--es-offset", "@latest")
_run_ids = itertools.count(os.getpid() * 1000)


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the generator found; `figures` is its JSON as it came."""

    ok: bool
    error: str
    messages_per_second: float
    figures: dict[str, Any]


def build() -> None:
    """Compile the generator and the reference brokers unless they are there and newer than their source.

    Raises:
        RuntimeError: a tool or a library is missing; names the Debian package that brings it.
    """
    for tool, package in (("make", "make"), ("cc", "gcc"), ("pkg-config", "pkg-config")):
        if shutil.which(tool) is None:
            message = f"needs {tool}: apt-get install {package}"
            raise RuntimeError(message)
    if subprocess.run(["pkg-config", "--exists", "libqpid-proton"], check=False).returncode:
        message = "needs the C library of Qpid Proton: apt-get install libqpid-proton11-dev libsasl2-modules"
        raise RuntimeError(message)
    subprocess.run(["make", "--quiet", "-C", str(FOLDER)], check=True)


def command(
    mode: str, url: str, address: str, *, count: int, run_id: int | None = None, options: Sequence[str] = ()
) -> list[str]:
    """The command line of one run; `mode` is send, recv or latency."""
    identity = ["--run-id", str(next(_run_ids) if run_id is None else run_id)]
    return [
        str(GENERATOR),
        mode,
        "--url",
        url,
        "--address",
        address,
        "--count",
        str(count),
        *identity,
        *options,
    ]


def run(
    mode: str, url: str, address: str, *, count: int, run_id: int | None = None, options: Sequence[str] = ()
) -> Load:
    """Run the generator to its end.

    Messages of one `run_id` are checked by the receiving side: loss, order, content.
    """
    arguments = command(mode, url, address, count=count, run_id=run_id, options=options)
    return read(subprocess.run(arguments, check=False, capture_output=True, text=True).stdout)


def read(text: str) -> Load:
    """Read the generator's line."""
    try:
        figures = json.loads(text)
    except ValueError:
        return Load(
            ok=False, error=f"no result from amqp_load: {text[:200]!r}", messages_per_second=0.0, figures={}
        )
    return Load(
        ok=bool(figures["ok"]),
        error=str(figures.get("error") or ""),
        messages_per_second=float(figures.get("msgs_per_s", 0.0)),
        figures=figures,
    )
