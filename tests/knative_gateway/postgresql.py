"""A PostgreSQL server for the tests, from Debian's package `postgresql`, in a temporary directory.

Without PostgreSQL, the tests are skipped with that reason. `fsync` is off: the tests are about the visibility
of writes, not about power failures.
"""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
}


def binaries() -> Path | None:
    """Return the directory of `initdb` and `postgres`."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next(
        (place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None
    )


def other_user() -> str | None:
    """Return another user: root may not run PostgreSQL."""
    if os.geteuid():
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


@contextmanager
def server(shared: Path) -> Iterator[Path]:
    """The directory of the socket of a running server; its superuser is `tester`.

    `shared`: where the first of several servers leaves a copy of its new data directory for the others.
    """
    place = binaries()
    if place is None:
        pytest.skip("needs a PostgreSQL server: apt-get install postgresql")
    user = other_user()
    root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        if user:
            shutil.chown(root, user)
        data = root / "data"
        _make(data, shared / "postgresql", place, user)
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (root / "log").open("w") as log:
            process = subprocess.Popen(
                [place / "postgres", "-D", data, "-k", root, *settings],
                user=user,
                stdout=log,
                stderr=log,
                cwd=root,
            )
        try:
            _wait(process, root)
            yield root
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _make(data: Path, template: Path, place: Path, user: str | None) -> None:
    """Make a data directory: copied, because `initdb` takes a second of CPU."""
    with template.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if template.exists():
            _copy(template, data)
            return
        done = subprocess.run(
            [
                place / "initdb",
                "-D",
                data,
                "-U",
                "tester",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ],
            user=user,
            capture_output=True,
            text=True,
            check=False,
            cwd=data.parent,
        )
        assert done.returncode == 0, done.stderr
        part = template.with_suffix(".part")
        _copy(data, part)
        part.rename(template)


def _copy(source: Path, target: Path) -> None:
    # With the owner of the files, which shutil does not copy.
    subprocess.run(["cp", "-a", source, target], check=True)


def _wait(process: "subprocess.Popen[bytes]", root: Path) -> None:
    """Wait until the server has written into its log file that it is ready."""
    pid_file = root / "data" / "postmaster.pid"
    for _ in range(600):
        if process.poll() is not None:
            pytest.fail(f"PostgreSQL ended: {(root / 'log').read_text()}")
        if pid_file.exists() and "ready" in pid_file.read_text():
            return
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("PostgreSQL does not start")
