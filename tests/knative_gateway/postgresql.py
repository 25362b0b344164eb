"""A PostgreSQL server for the tests, from Debian's package `postgresql`, in a temporary directory.

Without PostgreSQL, the tests are skipped with that reason. `fsync` is off: the tests are about the visibility
of writes, not about power failures.
"""

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bench.products import postgresql

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
}


@contextmanager
def server(shared: Path) -> Iterator[Path]:
    """The directory of the socket of a running server; its superuser is `tester`.

    `shared`: where the first of several servers leaves a copy of its new data directory for the others.
    """
    if postgresql.binaries() is None:
        pytest.skip(postgresql.MISSING)
    with postgresql.server(_SETTINGS, partial(_make, template=shared / "postgresql")) as root:
        yield root


def _make(data: Path, template: Path) -> None:
    """Make a data directory: copied, because `initdb` takes a second of CPU."""
    with template.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if template.exists():
            _copy(template, data)
            return
        postgresql.initialize(data, more=("--no-sync",))
        part = template.with_suffix(".part")
        _copy(data, part)
        part.rename(template)


def _copy(source: Path, target: Path) -> None:
    # With the owner of the files, which shutil does not copy.
    subprocess.run(["cp", "-a", source, target], check=True)
