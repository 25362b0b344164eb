"""Documents under the API's paths that are not objects: discovery, schemas, the version. [io]"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from knative_gateway.api.describing import discovery, openapi, openapi_v2
from knative_gateway.resources.kinds import Registry

PATHS: Final = (
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)
_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type of the answer. Clients request it with an @, Kubernetes answers with a dot, and so do we."""


def document(request: Request, registry: Registry) -> dict[str, object] | Response | None:
    """Return the document at a request's path, or None."""
    match request.scope["path"].strip("/").split("/"):
        case ["openapi", *rest]:
            return _schemas(request, registry, rest)
        case ["api", *rest]:
            return _core(request, registry, rest)
        case ["apis", *rest]:
            return _groups(registry, rest)
        case [name]:
            return _alone(registry, name)
        case _:
            return None


def _alone(registry: Registry, name: str) -> dict[str, object] | None:
    match name:
        case "":
            return {"paths": list(PATHS)}
        case "version":
            return discovery.version()
        case "openapi.json":
            return openapi.whole(registry)
        case _:
            return None


def _core(request: Request, registry: Registry, rest: list[str]) -> dict[str, object] | None:
    match rest:
        case []:
            return discovery.core_versions(request.headers.get("host", ""))
        case [version]:
            return discovery.resource_list(registry, "", version)
        case _:
            return None


def _groups(registry: Registry, rest: list[str]) -> dict[str, object] | None:
    match rest:
        case []:
            return discovery.group_list(registry)
        case [group]:
            return discovery.group(registry, group)
        case [group, version]:
            return discovery.resource_list(registry, group, version)
        case _:
            return None


def _schemas(request: Request, registry: Registry, rest: list[str]) -> dict[str, object] | Response | None:
    match rest:
        case ["v2"] if "protobuf" in request.headers.get("accept", ""):
            return Response(openapi_v2.encoded(openapi_v2.document(registry)), media_type=_PROTOBUF)
        case ["v2"]:
            return openapi_v2.document(registry)
        case ["v3"]:
            return openapi.index(registry)
        case ["v3", "api", version]:
            return openapi.document(registry, "", version)
        case ["v3", "apis", group, version]:
            return openapi.document(registry, group, version)
        case _:
            return None
