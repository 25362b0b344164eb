"""Cut the changelog: "Unreleased" becomes a version with a date. Takes and returns texts.

Headings inside a version get the version as a suffix ("### Added in 1.2.0"), so that their anchors stay
unique when the next version has the same headings.
"""

import re
from typing import Final

from tools.release.errors import ReleaseError

_UNRELEASED: Final = "## Unreleased"
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^(###+) (.+)$", re.MULTILINE)
_VERSIONS: Final = re.compile(r"^Versions: .*\n(?:\S.*\n)*\n", re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor that Git servers and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def versions(text: str) -> list[str]:
    """The versions of a changelog, newest first."""
    return [name.split()[0] for name in _SECTION.findall(text) if name != "Unreleased"]


def notes(text: str, version: str = "Unreleased") -> str:
    """What the changelog says about a version, without its heading.

    Raises:
        ReleaseError: the changelog has no such version.
    """
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        if heading.split()[0] == version:
            return body.strip("\n")
    message = f"CHANGELOG.md has no section '## {version}'"
    raise ReleaseError(message)


def cut(text: str, version: str, date: str) -> str:
    """Return the changelog with the unreleased entries as `version`, below a new empty "Unreleased".

    `date`: YYYY-MM-DD.

    Raises:
        ReleaseError: there are no entries, or the version exists.
    """
    if version in versions(text):
        message = f"CHANGELOG.md already has the version {version}: choose another version"
        raise ReleaseError(message)
    body = notes(text)
    if not re.search(r"^- \S", body, re.MULTILINE):
        message = "CHANGELOG.md has no entries under 'Unreleased': describe first what changes for users"
        raise ReleaseError(message)
    for _, name in _HEADING.findall(body):
        suffixed = f"{name} in {version}"
        body = body.replace(f"](#{anchor(name)})", f"](#{anchor(suffixed)})")
    body = _HEADING.sub(rf"\1 \2 in {version}", body)
    head, _, rest = text.partition(f"{_UNRELEASED}\n")
    _, _, older = rest.partition("\n## ")
    new = f"{_UNRELEASED}\n\n## {version} ({date})\n\n{body}\n" + (f"\n## {older}" if older else "")
    return _linked(_VERSIONS.sub("", head), new)


def _linked(head: str, sections: str) -> str:
    """Return the changelog with a link to each of its versions at the top."""
    links = [f"[{name.split()[0]}](#{anchor(name)})" for name in _SECTION.findall(sections)]
    lines, line = [], "Versions:"
    for link in links:
        if len(line) + len(link) > 108:
            lines.append(line)
            line = link
        else:
            line = f"{line} {link}"
    return f"{head}{chr(10).join([*lines, line])}\n\n{sections}"
