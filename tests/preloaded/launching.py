"""[io] Makes `subprocess` start processes of this project as forks of a preloaded process.

A process that imports the node takes 0.6 s of CPU until it is ready, a gateway with its node 1.7 s, and the
tests start hundreds. A fork takes a tenth. The first such start in a worker runs `tests.preloaded`, which
imports everything once. A fork is a child of the worker, and has the arguments, environment, folder,
descriptors and signals of a fresh process.

What a fork cannot copy is left to the system: other programs, flags of the interpreter, variables that it
reads at its start, terminals. Tests of the start and the end of a program use `real_commands`.
"""

import ctypes
import inspect
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.preloaded import requests
from tests.preloaded.requests import Request

_PR_SET_CHILD_SUBREAPER: Final = 36
_PROGRAMS: Final = {
    str(Path(sys.executable).with_name(name)): f"import sys\nfrom {package}.cli import main\nsys.exit(main())"
    for name, package in (("amqp-streams", "amqp_streams"), ("knative-gateway", "knative_gateway"))
}
_MODULES: Final = (
    "amqp_streams.cli",
    "knative_gateway.cli",
    "knative_gateway.workers.process",
    "attack.",
    "bench.groups",
    "examples.",
    "tests.crash.",
)
IN_A_FORK: Final = "# may run in a fork\n"
"""What the code of `-c` begins with if a fork may run it."""
_CHILDREN: Final = "service_parts.children"
"""A child that this module prepares ends with the gateway."""
_READ_AT_START: Final = (b"PYTHON", b"LANG", b"LC_", b"LD_", b"MALLOC_")
"""Variables that an interpreter obeys only at its start."""
_OBEYED_LATER: Final = (b"PYTHONFAULTHANDLER", b"PYTHONDONTWRITEBYTECODE")

system_start: Final[Callable[..., int]] = subprocess._fork_exec  # type: ignore[attr-defined]  # it is private
_libc: Final = ctypes.CDLL(None, use_errno=True)
_lock: Final = threading.Lock()
_preloaded: Final[list[tuple[socket.socket, subprocess.Popen[bytes] | None]]] = []


def install(way: socket.socket | None = None) -> None:
    """Make `subprocess`, and what is built on it, start our processes by a fork.

    `way`: to the preloaded process. If it is None, the first start runs a preloaded process.
    """
    if way is not None:
        _preloaded.append((way, None))
    replace(_start)


@contextmanager
def real_commands() -> Iterator[None]:
    """Start all processes as users do, for tests of the start itself."""
    before = subprocess._fork_exec  # type: ignore[attr-defined]  # see `replace`
    replace(system_start)
    try:
        yield
    finally:
        replace(before)


def replace(start: Callable[..., int]) -> None:
    """Make `start` what `subprocess` calls in place of fork and exec."""
    # The only seam below Popen: its pipes, waits and errors stay the system's.
    subprocess._fork_exec = start  # type: ignore[attr-defined]


def _start(*arguments: Any) -> int:
    """Return the process id, as `_posixsubprocess.fork_exec` does."""
    request = _request(arguments)
    if request is None:
        return system_start(*arguments)
    with _lock:
        if not _preloaded:
            _preloaded.append(_preload())
        # The parent of the fork ends at once, so that the fork becomes a child of this process.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            way, _ = _preloaded[0]
            requests.send(way, request, _descriptors(arguments))
            return int(way.recv(64))
        finally:
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _request(arguments: Sequence[Any]) -> Request | None:
    """What these arguments of `fork_exec` ask for, if a fork can do it."""
    words, _, close, kept, folder, environment = arguments[:6]
    restore_signals, new_session, *unusual = arguments[14:21]
    if not close or not restore_signals or any(one not in (None, -1) for one in unusual):
        return None
    prepare = arguments[21]
    if prepare is not None and prepare.__module__ != _CHILDREN:
        return None
    given = dict(os.environb) if environment is None else dict(one.split(b"=", 1) for one in environment)
    ours = what([os.fsdecode(word) for word in words])
    if ours is None or _start_variables(given) != _start_variables(os.environb):
        return None
    if any(os.isatty(descriptor) for descriptor in _descriptors(arguments)[:3]):
        return None
    own = arguments[13]
    return Request(
        *ours,
        folder=os.fsdecode(folder or Path.cwd()),
        environment=given,
        kept=[one for one in kept if one != own],
        new_session=bool(new_session),
        asks=os.getpid(),
        ends_with=None if prepare is None else inspect.getclosurevars(prepare).nonlocals["sent"],
    )


def _descriptors(arguments: Sequence[Any]) -> list[int]:
    """stdin, stdout and stderr of the new process, then those that it inherits."""
    standard = (arguments[6], arguments[9], arguments[11])
    return [own if given < 0 else given for own, given in enumerate(standard)] + [
        one for one in arguments[3] if one != arguments[13]
    ]


def what(words: Sequence[str]) -> tuple[str | None, str, list[str]] | None:
    """The code, the module and sys.argv of a command line that is ours; None for any other."""
    program, *rest = words
    if program in _PROGRAMS:
        return _PROGRAMS[program], "", [program, *rest]
    if program != sys.executable or len(rest) < 2:
        return None
    flag, value, *rest = rest
    if flag == "-c" and value.startswith(IN_A_FORK):
        return value, "", ["-c", *rest]
    return (None, value, ["-m", *rest]) if flag == "-m" and value.startswith(_MODULES) else None


def _start_variables(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name not in _OBEYED_LATER
    }


def _preload() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that has imported everything. It ends when this one has ended."""
    ours, its = requests.pair()
    with its, real_commands():
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.preloaded", str(its.fileno())],
            cwd=Path(__file__).parents[2],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return ours, process
