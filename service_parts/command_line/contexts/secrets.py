"""[io] Reads the secrets that a context names."""

import shlex
import subprocess
from pathlib import Path
from typing import Final

from service_parts.command_line.contexts.settings import Value
from service_parts.errors import SettingError

TIMEOUT_S: Final = 60.0
"""The command may ask for a passphrase."""


def secret(settings: dict[str, Value], name: str) -> str | None:
    """Return the secret `name`, from `NAME_file` or `NAME_command` of a context; None if it has neither.

    Raises:
        SettingError: the file cannot be read, or the command fails. The message does not contain the secret.
    """
    file, command = settings.get(f"{name}_file"), settings.get(f"{name}_command")
    if file is not None:
        return _first_line(_read(Path(str(file)), name), str(file), name)
    if command is not None:
        return _first_line(_printed(str(command), name), f"the command {command!r}", name)
    return None


def _read(file: Path, name: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        message = f"the {name} of the context cannot be read from {file}: {error.strerror}"
        raise SettingError(message) from error
    except UnicodeDecodeError as error:
        message = f"the {name} of the context in {file} is not UTF-8"
        raise SettingError(message) from error


def _printed(command: str, name: str) -> str:
    try:
        # The command is the user's own, from a file that only the user can change; stderr is the terminal.
        done = subprocess.run(  # noqa: S603
            shlex.split(command), stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
        )
    except OSError as error:
        message = f"the command {command!r} for the {name} of the context cannot run: {error.strerror}"
        raise SettingError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"the command {command!r} for the {name} of the context did not end in {TIMEOUT_S:.0f} s"
        raise SettingError(message) from error
    except ValueError as error:
        message = f"the command {command!r} for the {name} of the context is not valid: {error}"
        raise SettingError(message) from error
    if done.returncode:
        message = f"the command {command!r} for the {name} of the context ended with {done.returncode}"
        raise SettingError(message)
    return done.stdout


def _first_line(text: str, where: str, name: str) -> str:
    lines = text.splitlines()
    if not lines or not lines[0]:
        message = f"{where} has no {name}: its first line is empty"
        raise SettingError(message)
    return lines[0]
