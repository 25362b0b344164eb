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
SOURCES: Final = ("amqp_streams/proton/_loops.c", "amqp_streams/kafka/brokers/_records.c")
TESTS: Final = (
    "tests/amqp_streams/proton",
    "tests/amqp_streams/server/links",
    "tests/amqp_streams/kafka/brokers/test_compiled.py",
    "tests/amqp_streams/kafka/brokers/test_producers.py",
    "tests/amqp_streams/kafka/brokers/test_takers.py",
    "tests/amqp_streams/kafka/brokers/test_consuming.py",
)
_FLAGS: Final = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_LIBRARIES: Final = ("libasan.so", "libubsan.so")
# Imports the modules that were built here in place of the installed ones, then runs the tests.
_PROGRAM: Final = """
import importlib.machinery, importlib.util, sys
folder, names, *tests = sys.argv[1:]
for name in names.split(","):
    path = f"{folder}/{name.rsplit('.')[-1]}.abi3.so"
    spec = importlib.util.spec_from_file_location(
        name, path, loader=importlib.machinery.ExtensionFileLoader(name, path))
    sys.modules[name] = importlib.util.module_from_spec(spec)
import pytest
from amqp_streams.kafka.brokers import compiled as records
from amqp_streams.proton import compiled
for module in (compiled.loops, records.loaded.module):
    assert module.__file__.startswith(folder), module
sys.exit(pytest.main(["-p", "no:xdist", *tests]))
"""


def build(source: str, folder: Path, compiler: str) -> str:
    """Compile a module with sanitizers into `folder`; returns its name."""
    path = ROOT / source
    include = sysconfig.get_paths()["include"]
    module = folder / f"{path.stem}.abi3.so"
    command = [compiler, "-shared", "-fPIC", *_FLAGS, f"-I{include}", str(path), "-o", str(module)]
    subprocess.run(command, check=True)
    return source.removesuffix(".c").replace("/", ".")


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
        names = [build(source, Path(name), compiler) for source in SOURCES]
        command = [sys.executable, "-c", _PROGRAM, name, ",".join(names), *TESTS]
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment(compiler), check=False).returncode)


if __name__ == "__main__":
    main()
