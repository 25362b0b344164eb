"""Discovery: the groups, versions and resources that are served. Pure.

Spec: Kubernetes API concepts, "Discovery".
"""

from collections.abc import Sequence
from typing import Final

from knative_gateway import __version__
from knative_gateway.resources.kinds import CORE, Kind, Registry

KUBERNETES: Final = ("1", "33")
"""The Kubernetes release whose API is implemented. Clients compare it with their own version."""
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS: Final = ("get", "patch", "update")


def version() -> dict[str, object]:
    major, minor = KUBERNETES
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+knative-gateway-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "python",
    }


def core_versions(host: str) -> dict[str, object]:
    """Return `/api`. `host` is the Host header of the request."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    }


def group_list(registry: Registry) -> dict[str, object]:
    groups = [_group(name, versions) for name, versions in registry.versions().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> dict[str, object] | None:
    """Return `/apis/GROUP`, or None if the group does not exist."""
    versions = registry.versions().get(name)
    return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(registry: Registry, group_name: str, version_name: str) -> dict[str, object] | None:
    """Return `/api/v1` or `/apis/GROUP/VERSION`, or None if the version does not exist."""
    kinds = registry.of_version(group_name, version_name)
    if not kinds:
        return None
    full = f"{group_name}/{version_name}" if group_name != CORE else version_name
    resources = [resource for kind in kinds for resource in _resources(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": full, "resources": resources}


def _group(name: str, versions: Sequence[str]) -> dict[str, object]:
    listed = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(kind: Kind) -> list[dict[str, object]]:
    resource: dict[str, object] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    status = {
        "name": f"{kind.plural}/status",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(STATUS_VERBS),
    }
    return [resource, status] if kind.status else [resource]
