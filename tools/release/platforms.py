"""The platform tags of a wheel: those that the symbols of its libraries allow, and no others."""

import json
import platform
import sys
from pathlib import Path
from typing import Final

from tools.release.errors import ReleaseError, output

_OLD_NAMES: Final = {"manylinux_2_17": "manylinux2014"}


def platform_tags(wheel: Path) -> list[str]:
    """The manylinux tags that auditwheel finds for a wheel, for example `manylinux_2_17_x86_64`.

    auditwheel compares the versions of the symbols that the wheel needs with those of the C library of each
    manylinux policy.

    Raises:
        ReleaseError: the wheel needs a library that the policies do not allow, so no such tag is true.
    """
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    found = json.loads(output(command, variables={"PATH": "/usr/bin:/bin"}))
    tag, needed = str(found["overall_tag"]), found.get("external_libs") or found.get("versioned_symbols")
    return tags_of(tag, f"{wheel.name} needs {needed}")


def tags_of(tag: str, needs: str) -> list[str]:
    """The tag, and its older name for installers from before PEP 600.

    Raises:
        ReleaseError: the tag is not a manylinux tag; `needs` says what the wheel needs.
    """
    if not tag.startswith("manylinux"):
        message = f"no manylinux tag is true for this wheel, only {tag}: {needs}"
        raise ReleaseError(message)
    policy = tag.removesuffix(f"_{platform.machine()}")
    return [tag, *([f"{_OLD_NAMES[policy]}_{platform.machine()}"] if policy in _OLD_NAMES else [])]
