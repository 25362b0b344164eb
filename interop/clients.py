"""Other people's clients made ready: their libraries in `build/interop`, at fixed versions; what cannot be
had is said.

`prepare(name)` gives the command to run, to which `send`, `receive` or `info` and their arguments are added
(README.md here).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
BUILD: Final = HERE.parent / "build" / "interop"
RHEA: Final = "3.0.5"
INSTALL_SECONDS_MAX: Final = 300


class MissingError(Exception):
    """This machine, or its network, does not have what a client needs."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to run a client."""

    arguments: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        *arguments: str,
        lines: str = "",
        seconds_max: float = 120,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """What it prints.

        Raises:
            RuntimeError: it failed or did not end; with its words.
        """
        command = [*self.arguments, *arguments]
        around = {**os.environ, **self.environment, **(environment or {})}
        try:
            done = subprocess.run(
                command,
                input=lines,
                capture_output=True,
                text=True,
                env=around,
                timeout=seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{' '.join(arguments[:1])} did not end within {seconds_max} s: {error.stderr!r}"
            raise RuntimeError(message) from error
        if done.returncode:
            message = f"{' '.join(arguments[:1])} ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
            raise RuntimeError(message)
        return done.stdout


def prepare(name: str) -> Command:
    """The command of the client `name`.

    Raises:
        MissingError: it cannot be had here, and why.
    """
    return CLIENTS[name]()


def prepare_login(name: str) -> Command:
    """The command of the client `name` that logs in: `login URL`, everything else in the environment.

    Raises:
        MissingError: it cannot be had here, and why.
    """
    made = prepare(name)
    client, login = _LOGINS.get(name, ("", ""))
    return Command([*made.arguments[:-1], made.arguments[-1].removesuffix(client) + login], made.environment)


def prepare_reconnecting(name: str, *, install: bool) -> Command:
    """The command of the client `name` that reconnects: `reconnect URL LOG`. Without `install`, only if its
    library is there.

    Raises:
        MissingError: it cannot be had here, and why.
    """
    if not install and not all((BUILD / folder).exists() for folder in _INSTALLED[name]):
        message = f"the library of {name} is not installed in build/interop: `make reconnecting` does it"
        raise MissingError(message)
    return RECONNECTING[name]()


def _rhea() -> Command:
    node, npm = _tool("node", "nodejs"), _tool("npm", "npm")
    folder = BUILD / f"rhea-{RHEA}"
    if not (folder / "node_modules" / "rhea").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)]
        options += ["--fetch-retries=1", "--fetch-timeout=15000"]  # without a network: said soon
        _run([npm, "install", *options, f"rhea@{RHEA}"], HERE / "rhea", "rhea from npm")
    return Command([node, str(HERE / "rhea" / "client.mjs")], {"NODE_MODULES": str(folder / "node_modules")})


def _proton() -> Command:
    return Command([sys.executable, str(HERE / "proton" / "client.py")])


def _go_amqp() -> Command:
    go = _tool("go", "golang-go")
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "go-amqp"
    _run([go, "build", "-o", str(program), "."], HERE / "go", "go-amqp from the Go proxy")
    return Command([str(program)])


def _protonj2() -> Command:
    java, maven = _tool("java", "default-jre"), _tool("mvn", "maven")
    folder = BUILD / "protonj2"
    if not (folder / "classes" / "LoginClient.class").exists() or not (folder / "lib").is_dir():
        _run(
            [maven, "--quiet", "--batch-mode", f"-Dbuild={folder}", "package"],
            HERE / "java",
            "protonj2 from Maven",
        )
    return Command([java, "-cp", f"{folder}/classes:{folder}/lib/*", "InteropClient"])


def _rhea_reconnecting() -> Command:
    made = _rhea()
    return Command([made.arguments[0], str(HERE / "rhea" / "reconnect.mjs")], made.environment)


def _proton_reconnecting() -> Command:
    return Command([sys.executable, str(HERE / "proton" / "reconnect.py")])


def _qpid_jms_reconnecting() -> Command:
    java, folder = _tool("java", "default-jre"), BUILD / "qpid-jms"
    if not (folder / "classes" / "ReconnectClient.class").exists() or not (folder / "lib").is_dir():
        maven = _tool("mvn", "maven")
        _run(
            [maven, "--quiet", "--batch-mode", f"-Dbuild={folder}", "package"],
            HERE / "jms",
            "qpid-jms from Maven",
        )
    return Command([java, "-cp", f"{folder}/classes:{folder}/lib/*", "ReconnectClient"])


# Programs of their own, where logging in is one.
_LOGINS: Final = {
    "rhea": ("client.mjs", "login.mjs"),
    "proton": ("client.py", "login.py"),
    "protonj2": ("InteropClient", "LoginClient"),
}
CLIENTS: Final[Mapping[str, Callable[[], Command]]] = {
    "proton": _proton,
    "rhea": _rhea,
    "go-amqp": _go_amqp,
    "protonj2": _protonj2,
}

RECONNECTING: Final[Mapping[str, Callable[[], Command]]] = {
    "proton": _proton_reconnecting,
    "rhea": _rhea_reconnecting,
    "qpid-jms": _qpid_jms_reconnecting,
}
_INSTALLED: Final = {
    "proton": (),
    "rhea": (f"rhea-{RHEA}/node_modules/rhea",),
    "qpid-jms": ("qpid-jms/classes/ReconnectClient.class", "qpid-jms/lib"),
}

BATCHES: Final = frozenset({"rhea"})
"""Those with a command `batches`."""


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        message = f"no {name} on this machine (Debian: {package})"
        raise MissingError(message)
    return found


def _run(command: list[str], folder: Path, what: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"{what}: not there within {INSTALL_SECONDS_MAX} s"
        raise MissingError(message) from error
    if done.returncode:
        message = f"{what}: {(done.stderr or done.stdout).strip()[-500:]}"
        raise MissingError(message)
