"""[io] Kafka's Java programs: their command lines, files of settings, and new data directories."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from examples.java import RELEASE_MIN, is_usable

BROKER: Final = "kafka.Kafka"
CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"
"""The id of each cluster: clusters have ports and folders of their own."""
_FORMAT: Final = "kafka.tools.StorageTool"
_SHORT: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a program that ends after a second or two: the compiler for faster code would be a third of its CPU."""
_LOGGING: Final = Path(__file__).parent / "kafka" / "log4j2.yaml"


def java() -> str | None:
    """The command of a Java that runs brokers: that of JAVA_HOME, or that of the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return found if found is not None and is_usable(found) else None


def why_no_java() -> str:
    """Why brokers cannot run here; empty if they can."""
    return "" if java() else f"needs Java {RELEASE_MIN} or newer: apt-get install openjdk-17-jre-headless"


def command(folder: Path, memory: Sequence[str], *program: str) -> list[str]:
    """The command line of a program of the Kafka in `folder`."""
    logging = f"-Dlog4j2.configurationFile={_LOGGING}"
    return [
        java() or "java",
        *memory,
        "-Djava.awt.headless=true",
        logging,
        "-cp",
        f"{folder}/libs/*",
        *program,
    ]


def write_settings(file: Path, settings: Mapping[str, str]) -> Path:
    """Write a file of settings, and return it."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def format_data(folder: Path, file: Path, words: IO[bytes]) -> None:
    """Make the data directory that the settings in `file` name; what the program prints goes to `words`."""
    done = command(folder, _SHORT, _FORMAT, "format", "-t", CLUSTER, "-c", str(file))
    subprocess.run(done, check=True, stdout=words, stderr=words)
