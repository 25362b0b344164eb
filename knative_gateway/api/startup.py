"""Applies the objects in a directory of YAML files when the gateway starts. [io]

They are applied by server-side apply with a manager of their own. Changes that users made to their fields are
reset. Objects that are no longer in the directory stay until a user deletes them.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

from knative_gateway.api.app import Api
from knative_gateway.errors import ConfigError
from knative_gateway.resources.admission import Request
from knative_gateway.resources.documents.manifests import ManifestError, objects, read_yaml
from knative_gateway.resources.objects import Object, name_of, namespace_of, text
from knative_gateway.resources.refusals import StatusError

MANAGER: Final = "resources-directory"
SUFFIXES: Final = (".yaml", ".yml", ".json")
_FIRST: Final = {"CustomResourceDefinition": 0, "Namespace": 1, "ConfigMap": 2}


async def load_directory(api: Api, directory: Path) -> int:
    """Apply all objects in the files of a directory, and return their number.

    Definitions, namespaces and ConfigMaps are applied first, because other objects refer to them.

    Raises:
      ConfigError: a file cannot be read, or an object is refused. The message names the file.
      UnavailableError: the store is not available.
    """
    found = await asyncio.to_thread(_read, directory)
    for path, object_ in sorted(found, key=lambda each: _FIRST.get(text(each[1], "kind"), 3)):
        kind = api.definitions.registry.of(text(object_, "apiVersion"), text(object_, "kind"))
        words = f"{path}: {text(object_, 'kind')} {name_of(object_)}"
        if kind is None:
            message = f"{words}: the gateway does not serve this kind of {text(object_, 'apiVersion')}"
            raise ConfigError(message)
        namespace = (namespace_of(object_) or "default") if kind.namespaced else ""
        now_ms = time.time_ns() // 1_000_000
        request = Request(
            kind, namespace, name_of(object_), now_ms, manager=MANAGER, defaults=api.settings.defaults
        )
        try:
            await api.objects.apply(request, object_, force=True)
        except StatusError as error:
            message = f"{words}: {error}"
            raise ConfigError(message) from None
    return len(found)


def _read(directory: Path) -> list[tuple[Path, Object]]:
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
        contents = [(path, path.read_bytes()) for path in paths]
    except OSError as error:
        message = f"resources: {error.filename}: {error.strerror}"
        raise ConfigError(message) from None
    found: list[tuple[Path, Object]] = []
    for path, content in contents:
        try:
            found += [(path, each) for each in objects(read_yaml(content))]
        except ManifestError as error:
            message = f"resources: {path}: {error}"
            raise ConfigError(message) from None
    return found
