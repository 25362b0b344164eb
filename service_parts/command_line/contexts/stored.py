"""[io] The file of contexts: JSON, readable and writable for its owner only.

One file has the contexts of all programs:

    {"contexts": {"amqp-streams": {"prod": {"url": "amqps://h", "user": "ann"}}},
     "current": {"amqp-streams": "prod"}}

Law: a file that other users can change is refused, because a context may name a command.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from service_parts.command_line.contexts.settings import Kind, Settings
from service_parts.errors import SettingError

VARIABLE: Final = "AMQP_STREAMS_CONTEXTS"
"""The variable with the path of the file."""
_DEFAULT: Final = Path("amqp-event-streams", "contexts.json")
_OTHERS_MAY_WRITE: Final = 0o022
_FOLDER_MODE: Final = 0o700


@dataclass(slots=True)
class Contexts:
    """The contexts of one program, by name, and the one that `context use` chose."""

    path: Path
    named: dict[str, Settings] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Settings:
        """Return the context with this name.

        Raises:
            SettingError: it does not exist. The message has the nearest name.
        """
        if name not in self.named:
            near = get_close_matches(name, self.named, n=1)
            known = f"the contexts are {', '.join(self.named)}" if self.named else "no context exists"
            advice = f"did you mean {near[0]!r}?" if near else f"{known}; see 'context add --help'"
            message = f"no context named {name!r} in {self.path}; {advice}"
            raise SettingError(message)
        return self.named[name]


def path_of(environment: Mapping[str, str]) -> Path:
    """Return the path of the file: AMQP_STREAMS_CONTEXTS, else below the folder for configuration."""
    named = environment.get(VARIABLE)
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path("~/.config").expanduser()) / _DEFAULT


def load(kind: Kind, path: Path) -> Contexts:
    """Read the contexts of a program. A file that does not exist has none.

    Raises:
        SettingError: the file cannot be read, is not valid, or other users can change it.
    """
    document = _document(path)
    named = _part(document, "contexts").get(kind.program) or {}
    current = _part(document, "current").get(kind.program)
    if not isinstance(named, dict) or not all(isinstance(one, dict) for one in named.values()):
        raise _invalid(path)
    return Contexts(path, named, current if current in named else None)


def save(kind: Kind, contexts: Contexts) -> None:
    """Replace the contexts of a program in the file. It is created if it does not exist.

    Raises:
        SettingError: the file cannot be written.
    """
    path = contexts.path
    document = _document(path)
    document["contexts"] = {**_part(document, "contexts"), kind.program: contexts.named}
    current = {name: one for name, one in _part(document, "current").items() if name != kind.program}
    document["current"] = {
        **current,
        **({kind.program: contexts.current} if contexts.current is not None else {}),
    }
    try:
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        # A temporary file has the mode 0600, and a rename replaces the file at once or not at all.
        descriptor, written = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.write("\n")
        Path(written).replace(path)
    except OSError as error:
        message = f"the contexts cannot be written to {path}: {error.strerror}"
        raise SettingError(message) from error


def _document(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = f"the contexts in {path} cannot be read: {error.strerror}"
        raise SettingError(message) from error
    except UnicodeDecodeError as error:
        raise _invalid(path) from error
    if status.st_mode & _OTHERS_MAY_WRITE or status.st_uid not in (os.geteuid(), 0):
        message = (
            f"other users can change {path}, and a context can name a command: run chmod 600 {path}, and"
            " make sure that it is your file"
        )
        raise SettingError(message)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(path) from error
    if not isinstance(document, dict):
        raise _invalid(path)
    return document


def _part(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _invalid(path: Path) -> SettingError:
    return SettingError(f"{path} is not a valid file of contexts: repair or remove it")
