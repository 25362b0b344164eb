"""What a path names: a collection, an object, a subresource. Pure. Spec: Kubernetes API concepts, "Resource
URIs".

/api/v1/namespaces/NS/services/NAME/status        the core group
/apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME     all others
"""

from dataclasses import dataclass
from typing import Final

STATUS: Final = "status"
_SEGMENTS_MAX: Final = 9
_CHARACTERS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Target:
    """`namespace` is empty for all namespaces and for what has none;

    `name` for a collection; `subresource` for the thing itself.
    """

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str) -> Target | None:
    """What a decoded path names; None if it is not a path of this kind."""
    segments = path.strip("/").split("/")
    if (
        len(segments) > _SEGMENTS_MAX
        or not all(segments)
        or not path.isprintable()
        or len(path) > _CHARACTERS_MAX
    ):
        return None  # no name of anything; PostgreSQL could not even look for some of them
    if segments[0] == "api" and len(segments) > 2:
        return _below("", segments[1], segments[2:])
    if segments[0] == "apis" and len(segments) > 3:
        return _below(segments[1], segments[2], segments[3:])
    return None


def _below(group: str, version: str, rest: list[str]) -> Target | None:
    namespace = ""
    # The core's namespaces are objects themselves: namespaces/NAME/status is one's status,
    # namespaces/NAME/services a collection in it.
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2:] == [STATUS]):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return Target(group, version, plural, namespace, name, subresource)
