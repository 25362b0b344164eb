"""Objects from a directory of YAML when the gateway starts. [io]

They are applied like by server-side apply under a manager of their own: what somebody changed since is set
back, what is no longer in the directory stays until it is deleted.
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
    """Apply all objects of a directory's files, definitions and namespaces first; how many there are.

    Raises:
        ConfigError: a file cannot be read, or an object is refused; names it.
        UnavailableError: the store is away.
    """
    found = await asyncio.to_thread(_read, directory)
    for place, object_ in sorted(found, key=lambda each: _FIRST.get(text(each[1], "kind"), 3)):
        kind = api.definitions.registry.of(text(object_, "apiVersion"), text(object_, "kind"))
        words = f"{place}: {text(object_, 'kind')} {name_of(object_)}"
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
