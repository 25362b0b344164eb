"""`make sanitize`: build the compiled loops with sanitizers, and run their tests.

The address sanitizer reports reads and writes outside of memory blocks, the other one undefined behaviour.
Both end the process with a report. The library of the address sanitizer must be loaded before Python, so the
tests run in a process of their own.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "amqp_streams" / "proton" / "_loops.c"
TESTS: Final = ("tests/amqp_streams/proton", "tests/amqp_streams/server/links")
_FLAGS: Final = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_LIBRARIES: Final = ("libasan.so", "libubsan.so")
# Imports the module that was built here in place of the installed one, then runs the tests.
_PROGRAM: Final = """
import importlib.machinery, importlib.util, sys
name, path, *tests = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    name, path, loader=importlib.machinery.ExtensionFileLoader(name, path))
sys.modules[name] = importlib.util.module_from_spec(spec)
import pytest
from amqp_streams.proton import compiled
assert compiled.loops.__file__ == path, compiled.loops
sys.exit(pytest.main(["-p", "no:xdist", *tests]))
"""


def build(folder: Path, compiler: str) -> Path:
    """Compile the module with sanitizers into `folder`."""
    module = folder / "_loops.abi3.so"
    include = sysconfig.get_paths()["include"]
    command = [compiler, "-shared", "-fPIC", *_FLAGS, f"-I{include}", str(SOURCE), "-o", str(module)]
    subprocess.run(command, check=True)
    return module


def environment(compiler: str) -> dict[str, str]:
    """The environment in which Python loads a module with sanitizers. Python itself does not free all of its
    memory, so leaks are not reported.
    """
    found = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in _LIBRARIES
    ]
    return {**os.environ, "LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0"}


def main() -> None:
    """Exit with the status of the tests; 2: no compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        print("needs gcc: apt-get install gcc", file=sys.stderr)
        sys.exit(2)
    with tempfile.TemporaryDirectory(prefix="sanitize-") as name:
        module = build(Path(name), compiler)
        command = [sys.executable, "-c", _PROGRAM, "amqp_streams.proton._loops", str(module), *TESTS]
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment(compiler), check=False).returncode)


if __name__ == "__main__":
    main()
