"""Documents under the API's paths that are not objects: discovery, schemas, the version. [io]"""

from functools import partial
from typing import Final

from starlette.requests import Request

from knative_gateway.api.actions import GROUP_VERSION
from knative_gateway.api.describing import discovery, openapi, openapi_v2
from knative_gateway.api.stepping import in_thread, json_text
from knative_gateway.resources.kinds import BUILT_IN, Registry

GATEWAY: Final = f"/apis/{GROUP_VERSION}/gateway"
"""What the gateway is and how it does: `kubectl get --raw` shows it."""
PATHS: Final = (
    "/api",
    "/api/v1",
    "/apis",
    GATEWAY,
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


_JSON: Final = "application/json"
_SCHEMAS: Final = "openapi"
"""The beginning of the paths of documents with schemas."""


class Documents:
    """The texts of the documents. Those with schemas are made once for each registry, in a thread.

    Their number is bounded: only paths that exist have a document.
    """

    def __init__(self) -> None:
        self._registry = BUILT_IN
        self._texts: dict[tuple[str, bool], tuple[bytes, str]] = {}

    async def text(self, request: Request, registry: Registry) -> tuple[bytes, str] | None:
        """Return the text and the media type of the document at a request's path; None: it does not exist."""
        path, accepts_protobuf = (
            request.scope["path"].strip("/"),
            "protobuf" in request.headers.get("accept", ""),
        )
        work = partial(_document, path, registry, request.headers.get("host", ""), protobuf=accepts_protobuf)
        if not path.startswith(_SCHEMAS):
            return await _written(work())
        if registry is not self._registry:
            self._registry, self._texts = registry, {}
        known = self._texts.get((path, accepts_protobuf))
        if known is not None:
            return known
        made = await _written(await in_thread(work))
        if made is not None and registry is self._registry:
            self._texts[path, accepts_protobuf] = made
        return made


async def _written(document: dict[str, object] | bytes | None) -> tuple[bytes, str] | None:
    if isinstance(document, bytes):
        return document, _PROTOBUF
    return None if document is None else (await json_text(document), _JSON)


def _document(
    path: str, registry: Registry, host: str, *, protobuf: bool
) -> dict[str, object] | bytes | None:
    """Return the document at a path, or None."""
    match path.split("/"):
        case ["openapi", *rest]:
            return _schemas(registry, rest, protobuf=protobuf)
        case ["api", *rest]:
            return _core(host, registry, rest)
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


def _core(host: str, registry: Registry, rest: list[str]) -> dict[str, object] | None:
    match rest:
        case []:
            return discovery.core_versions(host)
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


def _schemas(registry: Registry, rest: list[str], *, protobuf: bool) -> dict[str, object] | bytes | None:
    match rest:
        case ["v2"] if protobuf:
            return openapi_v2.encoded(openapi_v2.document(registry))
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
