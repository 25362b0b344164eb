"""The version: which one may follow, and the one place in the code where it is."""

import re
from collections.abc import Iterable
from typing import Final

from packaging.version import InvalidVersion, Version

from tools.release.errors import ReleaseError

FILE: Final = "amqp_streams/__init__.py"
TAG_PREFIX: Final = "v"
_LINE: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def current(source: str) -> str:
    """The version in the text of `FILE`.

    Raises:
        ReleaseError: not exactly one line sets it.
    """
    match _LINE.findall(source):
        case [version]:
            return str(version)
        case found:
            message = f'{FILE} must have one line `__version__ = "…"` (found {len(found)})'
            raise ReleaseError(message)


def replaced(source: str, version: str) -> str:
    """Return the text of `FILE` with another version."""
    return source.replace(f'__version__ = "{current(source)}"', f'__version__ = "{version}"')


def next_version(text: str, released: Iterable[str]) -> str:
    """Check a version that a release shall have, and return it.

    `released`: tags. Those that do not begin with `v` and a version are ignored.

    Raises:
        ReleaseError: it is not a version, was released, or is older than a released one.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or str(version) != text or version.is_devrelease or version.local:
        message = f"'{text}' is not a valid version for a release: write VERSION=1.2.0 or VERSION=1.2.0rc1"
        raise ReleaseError(message)
    older = sorted(found for tag in released if (found := _tagged(tag)) is not None)
    if version in older:
        message = f"the version {text} exists: its tag is {TAG_PREFIX}{text}"
        raise ReleaseError(message)
    if older and version < older[-1]:
        message = f"the version {text} is older than {older[-1]}, which was released"
        raise ReleaseError(message)
    return text


def _tagged(tag: str) -> Version | None:
    try:
        return Version(tag.removeprefix(TAG_PREFIX)) if tag.startswith(TAG_PREFIX) else None
    except InvalidVersion:
        return None
