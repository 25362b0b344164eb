"""Where `make peers` puts the products, and which of them are there.

Everything is below one folder: `build/peers` of the project, or the environment variable `PEERS_DIR`. A
product's folder appears as the last step of its installation, so a folder that exists is complete. `kafka` is
the brokers, which tests use as well, `kafka-load` the load generator that only `make bench` needs.
"""

import os
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
VARIABLE: Final = "PEERS_DIR"
NAMES: Final = ("kafka", "kafka-load", "artemis", "qpid-j", "rabbitmq", "knative")


def peers_dir() -> Path:
    """The folder of all products."""
    return Path(os.environ.get(VARIABLE) or PROJECT / "build" / "peers").absolute()


def home(name: str) -> Path | None:
    """The folder of an installed product, or None. Of Kafka it has the jars in `libs`."""
    folder = peers_dir() / name
    return folder if folder.is_dir() else None


def failure_file(name: str) -> Path:
    """Where the reason of a failed installation is kept."""
    return peers_dir() / f"{name}.failed"


def why_missing(*names: str) -> str:
    """Why a product that is named is not there; empty if all of them are."""
    for name in names:
        if home(name) is None:
            file = failure_file(name)
            return file.read_text().strip() if file.is_file() else "not installed: make peers"
    return ""
