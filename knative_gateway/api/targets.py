"""The meaning of a path: a collection, an object or a subresource. Pure.

  /api/v1/namespaces/NS/services/NAME/status        the core group
  /apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME     all other groups

Spec: Kubernetes API concepts, "Resource URIs".
"""

from dataclasses import dataclass
from typing import Final

STATUS: Final = "status"
_SEGMENTS_MAX: Final = 9
_CHARACTERS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names.

    `namespace` is empty for all namespaces and for cluster-scoped kinds. `name` is empty for a collection.
    `subresource` is empty for the object itself.
    """

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str) -> Target | None:
    """Return what a decoded path names, or None if it is not the path of a resource."""
    segments = path.strip("/").split("/")
    if (
        len(segments) > _SEGMENTS_MAX
        or not all(segments)
        or not path.isprintable()
        or len(path) > _CHARACTERS_MAX
    ):
        return None  # not a valid name; PostgreSQL refuses some of these characters even in a query
    if segments[0] == "api" and len(segments) > 2:
        return _below("", segments[1], segments[2:])
    if segments[0] == "apis" and len(segments) > 3:
        return _below(segments[1], segments[2], segments[3:])
    return None


def _below(group: str, version: str, rest: list[str]) -> Target | None:
    namespace = ""
    # In the core group, namespaces are objects too: namespaces/NAME/status is the status of one, and
    # namespaces/NAME/services is a collection in it.
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2:] == [STATUS]):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return Target(group, version, plural, namespace, name, subresource)
