"""[io] A PostgreSQL server of Debian's package `postgresql`, for tests and for people."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

USER: Final = "tester"
"""The superuser. It needs no password: only programs of this machine reach the socket."""
MISSING: Final = "needs a PostgreSQL server: apt-get install postgresql"
START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 30.0


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


def url_of(sockets: Path) -> str:
    """Return the URL of the server whose socket is in this directory, for `--store`."""
    return f"postgresql://{USER}@/postgres?host={sockets}"


def initialize(data: Path, *, more: tuple[str, ...] = ()) -> None:
    """Make a data directory. Raises RuntimeError with what `initdb` says."""
    place = binaries()
    assert place is not None, "the caller has looked"
    command = [str(place / "initdb"), "-D", str(data), "-U", USER, "--auth=trust", *more]
    command += ["--encoding=UTF8", "--locale=C.UTF-8"]
    done = subprocess.run(
        command, user=other_user(), capture_output=True, text=True, check=False, cwd=data.parent
    )
    if done.returncode:
        message = f"initdb: {done.stderr[-1000:]}"
        raise RuntimeError(message)


@contextmanager
def server(settings: Mapping[str, str], make: Callable[[Path], None] = initialize) -> Iterator[Path]:
    """The directory of the socket of a running server. Nothing of it is left afterwards.

    `make`: makes the data directory. The paths of sockets must be short, so the directory is in `/tmp`.

    Raises:
        RuntimeError: it does not start.
    """
    place, user = binaries(), other_user()
    assert place is not None, "the caller has looked"
    root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        if user:
            shutil.chown(root, user)
        make(root / "data")
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (root / "log").open("w") as log:
            process = subprocess.Popen(
                [place / "postgres", "-D", root / "data", "-k", root, *given],
                user=user,
                stdout=log,
                stderr=log,
                cwd=root,
            )
        try:
            _await_ready(process, root)
            yield root
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_S_MAX)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _await_ready(process: "subprocess.Popen[bytes]", root: Path) -> None:
    """Wait until the server has written into its file that it is ready."""
    pid_file, latest = root / "data" / "postmaster.pid", time.monotonic() + START_S_MAX
    while time.monotonic() < latest:
        if process.poll() is not None:
            message = f"PostgreSQL ended: {(root / 'log').read_text()[-1000:]}"
            raise RuntimeError(message)
        if pid_file.exists() and "ready" in pid_file.read_text():
            return
        time.sleep(0.05)
    message = "PostgreSQL does not start"
    raise RuntimeError(message)
