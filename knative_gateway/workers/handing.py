"""[io] The files with tokens, keys and certificates: the parent reads them, the workers get their contents.

Law: a worker that starts later uses the same contents as the workers that run, also if the files have changed
since, or cannot be read any more. Only a reload replaces the contents.

A message to a worker: its settings as JSON, and the files as JSON: name of the setting -> mode, base64.
"""

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError
from service_parts.errors import raised_as
from service_parts.files import read_file

FILES: Final = (
    "tokens",
    "jwt.keys",
    "tls.certificate",
    "tls.key",
    "subscribers.ca",
    "subscribers.certificate",
    "subscribers.key",
)
"""The settings that name a file that each worker needs."""
FILE_BYTES_MAX: Final = 16 << 20
_DESCRIPTOR: Final = re.compile(r"/proc/self/fd/(\d+)")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file contains, and its mode: a worker refuses tokens that every user can read."""

    data: bytes
    mode: int


Files = Mapping[str, Contents]


def read_files(settings: GatewaySettings) -> Files:
    """Return the files of the settings.

    Raises:
        ConfigError: a file cannot be read.
    """
    found = {}
    for name in FILES:
        path: Any = settings
        for part in name.split("."):
            path = getattr(path, part, None)
        if path is not None:
            try:
                with raised_as(ConfigError, name):
                    found[name] = Contents(read_file(path, FILE_BYTES_MAX), path.stat().st_mode & 0o777)
            except OSError as error:  # removed after it was read
                message = f"{name}: cannot read {path}: {error.strerror}"
                raise ConfigError(message) from error
    return found


def packed(settings: GatewaySettings, files: Files) -> bytes:
    """Return the message to a worker."""
    # Without `amqp_listen`, which must not be set together with `amqp`.
    values = settings.model_dump_json(exclude={"amqp_listen"})
    texts = {name: [each.mode, base64.b64encode(each.data).decode()] for name, each in files.items()}
    return f'{{"settings":{values},"files":{json.dumps(texts)}}}'.encode()


class HandedFiles:
    """The files of one worker. Each is a file in memory, so that no other process sees it."""

    def __init__(self) -> None:
        self._descriptors: Final[dict[str, int]] = {}
        self._paths: Final[dict[int, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def settings(self, message: bytes) -> GatewaySettings:
        """Take a message of the parent. Returns the settings, which name the files in memory.

        The path of a file stays the same: parts of the gateway read it again at a reload.
        """
        given = json.loads(message)
        for name, (mode, text) in given["files"].items():
            *sections, last = name.split(".")
            section = given["settings"]
            for part in sections:
                section = section[part]
            descriptor = self._write(name, base64.b64decode(text), mode)
            self._paths[descriptor] = section[last]
            section[last] = f"/proc/self/fd/{descriptor}"
        return GatewaySettings.model_validate(given["settings"])

    def words(self, text: str) -> str:
        """Return a message with the paths that the user gave."""
        return _DESCRIPTOR.sub(lambda found: self._paths.get(int(found[1]), found[0]), text)

    def _write(self, name: str, data: bytes, mode: int) -> int:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            descriptor = self._descriptors[name] = os.memfd_create(name)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
        # The owner of the copy is this process, which may have read the original as one of its group.
        os.fchmod(descriptor, mode | 0o600)
        return descriptor
