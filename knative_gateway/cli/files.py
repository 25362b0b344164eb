"""The objects in the files of a command."""

import sys
from pathlib import Path
from typing import Final

from knative_gateway.errors import ConfigError
from knative_gateway.resources.documents.manifests import ManifestError, objects, read_yaml
from knative_gateway.resources.objects import Object

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")


def read_files(names: tuple[str, ...]) -> list[Object]:
    """Return the objects in files, in the files of directories, and in stdin (`-`), in their order.

    Raises:
      ConfigError: a file cannot be read, or has no objects. The message names the file.
    """
    found: list[Object] = []
    sources = []
    for name in names:
        for source, content in _contents(name):
            sources.append(source)
            try:
                found += objects(read_yaml(content))
            except ManifestError as error:
                message = f"{source}: {error}"
                raise ConfigError(message) from None
    if not found:
        suffixes = ", ".join(SUFFIXES)
        message = f"{', '.join(sources or names)}: no resources. Files of a directory end in {suffixes}"
        raise ConfigError(message)
    return found


def _contents(name: str) -> list[tuple[str, bytes]]:
    if name == STDIN:
        return [("stdin", sys.stdin.buffer.read())]
    path = Path(name)
    try:
        paths = (
            sorted(each for each in path.iterdir() if each.suffix in SUFFIXES) if path.is_dir() else [path]
        )
        return [(str(each), each.read_bytes()) for each in paths]
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        raise ConfigError(message) from None
