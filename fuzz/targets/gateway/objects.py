"""Requests to the gateway's API in this process, over a real store: bodies of every content type, patches of
every kind, queries and headers. Each answer is a documented one; what was accepted can be read, listed,
watched, sent again unchanged and patched.
"""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.gateway.documents import value
from fuzz.targets.gateway.made import KINDS, made
from knative_gateway.api import Api
from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.resources.kinds import BUILT_IN
from knative_gateway.store import open_store, sqlite_url

CODES: Final = frozenset({200, 201, 400, 403, 404, 405, 406, 409, 410, 413, 415, 422, 501})
"""What a single client may be answered; 501: replay without a data plane."""
_NOW_MS: Final = 1_700_000_000_000
_TYPES: Final = (
    "application/json", "application/json", "application/yaml", "application/json-patch+json",
    "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf", "", "text/plain",
    "application/json; charset=utf-16", "application/cbor",
)  # fmt: skip
_ACCEPT: Final = (
    "application/json", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf",
    "text/html", ",,;=", "application/json;as=Table",
)  # fmt: skip
_QUERIES: Final = (
    ("fieldManager", "m"), ("fieldManager", "\x00"), ("force", "true"), ("dryRun", "All"), ("dryRun", "x"),
    ("fieldValidation", "Strict"), ("fieldValidation", "x"), ("labelSelector", "a in (b"),
    ("labelSelector", "a=b"), ("fieldSelector", "metadata.name=a"), ("limit", "1"), ("limit", "-1"),
    ("limit", "9" * 18), ("continue", "x"), ("continue", "WzEsICIiLCAiIl0="), ("includeObject", "Object"),
    ("resourceVersion", "9" * 18),
)  # fmt: skip
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")
_PATHS: Final = (
    "/", "/api", "/apis", "/openapi/v3", "/openapi/v2", "/version", "/apis/x",
    "/api/v1/namespaces/default/status", "/apis//v1/x", "/\x00",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews", "/api/v1/namespaces/default/services/a/b/c/d/e",
    "/" + "a/" * 900,
)  # fmt: skip


class _Served:
    """An API over a store in a folder of its own, in a loop that runs only during a request."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.new_event_loop()
        self._stack: Final = AsyncExitStack()
        self._folder: Final = tempfile.TemporaryDirectory(prefix="fuzz-objects-")
        self.names: Final = count()
        self.api: Final = self.loop.run_until_complete(self._open())

    async def _open(self) -> Api:
        store = await self._stack.enter_async_context(open_store(sqlite_url(Path(self._folder.name))))
        api = Api(store.resources, store.cursors, now_ms=lambda: _NOW_MS)
        await api.start()
        self._stack.push_async_callback(api.close)
        return api

    def close(self) -> None:
        """Close the store."""
        self.loop.run_until_complete(self._stack.aclose())
        self.loop.close()
        self._folder.cleanup()


_served: _Served | None = None


def _running() -> _Served:
    global _served  # noqa: PLW0603  one a process
    if _served is None:
        _served = _Served()
    return _served


def close() -> None:
    """Close the store, if there is one."""
    global _served  # noqa: PLW0603  one a process
    if _served is not None:
        _served.close()
        _served = None


def run(data: bytes) -> str:
    """Some requests in a namespace of their own."""
    served = _running()
    return served.loop.run_until_complete(_requests(served.api, Draw(data), f"n{next(served.names)}"))


async def _requests(api: Api, draw: Draw, namespace: str) -> str:
    shown, definitions = list[str](), set[str]()
    for _ in range(1 + draw.below(6)):
        shown.append(await _request(api, draw, namespace, definitions))
    for path in (f"/api/v1/namespaces/{namespace}", *sorted(definitions)):
        await _called(api, "DELETE", path)
    return " ".join(sorted(set(shown)))


async def _request(api: Api, draw: Draw, namespace: str, definitions: set[str]) -> str:
    body: Any = made(draw)
    kind = draw.pick(KINDS) if draw.chance(12) else (body.get("apiVersion"), body.get("kind"))
    collection = _collection(kind, namespace)
    name = body["metadata"].get("name") if isinstance(body.get("metadata"), dict) else None
    method = draw.pick(_METHODS[:6] if not draw.chance(16) else _METHODS)
    path = collection if method == "POST" else f"{collection}/{name if isinstance(name, str) else 'a'}"
    if draw.chance(12):
        path = draw.pick(
            (*_PATHS, f"{path}/status", f"{path}/deliveries", f"{path}/pause", f"{path}/replay", collection)
        )
    query = [draw.pick(_QUERIES) for _ in range(draw.below(3))] if draw.chance(3) else []
    content_type = draw.pick(_TYPES)
    raw = _raw(draw, content_type, body)
    if method == "PATCH" and "apply" in content_type and not draw.chance(8):
        query.append(("fieldManager", draw.pick("ab")))
    headers = {"content-type": content_type, "accept": draw.pick(_ACCEPT) if draw.chance(4) else "*/*"}
    if "customresourcedefinitions" in path and method in {"POST", "PUT", "PATCH"}:
        definitions.add(f"{_collection(KINDS[-1], '')}/{name}")
    code, answer = await _called(api, method, path, raw, headers=headers, query=query)
    if (
        code in {200, 201}
        and method in {"POST", "PUT", "PATCH"}
        and ("dryRun", "All") not in query
        and headers["accept"] == "*/*"
    ):
        await _can_be_used(api, collection, answer)
    return f"{method} {code} {answer.get('reason', '')}"


def _collection(kind: tuple[Any, Any], namespace: str) -> str:
    found = BUILT_IN.of(*kind) if all(isinstance(each, str) for each in kind) else None
    if found is None:
        return f"/api/v1/namespaces/{namespace}/nothings"
    root = f"/apis/{found.api_version}" if found.group else f"/api/{found.version}"
    return f"{root}/namespaces/{namespace}/{found.plural}" if found.namespaced else f"{root}/{found.plural}"


def _raw(draw: Draw, content_type: str, body: dict[str, Any]) -> bytes:
    if draw.chance(12):
        return draw.raw(200)
    document: object = body
    if content_type == "application/json-patch+json":
        path = draw.pick(
            (
                "/metadata/labels",
                "/spec",
                "/spec/delivery/retry",
                "/metadata/name",
                "/metadata/annotations/a~1b",
            )
        )
        document = [
            {
                "op": draw.pick(("add", "replace", "remove", "test", "copy")),
                "path": path,
                "from": "/spec",
                "value": value(draw),
            }
        ]
    elif "merge-patch" in content_type and draw.chance(2):
        document = {"metadata": {"labels": value(draw)}, "spec": value(draw)}
    written = json.dumps(document).encode()
    if "yaml" in content_type and draw.chance(2):
        written = written_yaml(document).encode("utf-8", "surrogatepass")
    at = draw.below(len(written)) if draw.chance(12) else len(written)
    return written[:at]


async def _called(
    api: Api,
    method: str,
    path: str,
    raw: bytes = b"",
    *,
    headers: dict[str, str] | None = None,
    query: Sequence[tuple[str, str]] = (),
) -> tuple[int, dict[str, Any]]:
    """Status and document of the answer.

    Raises:
        WrongError: it is not one that the API may give.
    """
    incoming = [{"type": "http.request", "body": raw, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop() if incoming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.encode(), text.encode("latin-1", "replace")) for name, text in (headers or {}).items()]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": urlencode(query).encode(),
        "headers": fields,
    }
    await api(scope, receive, send)
    code = sent[0]["status"]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    if code not in CODES:
        message = f"{method} {path} is answered {code} {body[:500]!r}"
        raise WrongError(message)
    is_json = any(
        name == b"content-type" and text.startswith(b"application/json") for name, text in sent[0]["headers"]
    )
    if not is_json and code != 200:
        message = f"{method} {path} is answered {code} with {body[:200]!r}"
        raise WrongError(message)
    answer = json.loads(body) if body and is_json else {}
    if code >= 400 and (answer.get("kind"), answer.get("code"), answer.get("status")) != (
        "Status",
        code,
        "Failure",
    ):
        message = f"{method} {path} is answered {code} with {answer!r}"
        raise WrongError(message)
    return code, answer


async def _can_be_used(api: Api, collection: str, stored: dict[str, Any]) -> None:
    """Whatever is stored can be read, listed, shown as a table, sent again and patched."""
    if (
        "metadata" not in stored
        or stored.get("kind") in {"Status", "SelfSubjectReview"}
        or "name" not in stored["metadata"]
    ):
        return
    name, version = stored["metadata"]["name"], stored["metadata"].get("resourceVersion")
    path = f"{collection}/{name}"
    json_type = {"content-type": "application/json", "accept": "*/*"}
    found = await _called(api, "GET", path, headers=json_type)
    if found != (200, stored):
        message = f"{stored!r} is stored, and read as {found!r}"
        raise WrongError(message)
    if stored["kind"] == "CustomResourceDefinition":
        return  # what is built in may not be changed
    code, listed = await _called(api, "GET", collection, query=[("fieldSelector", f"metadata.name={name}")])
    if code != 200 or listed["items"] != [stored]:
        message = f"{stored!r} is stored, and listed as {listed!r}"
        raise WrongError(message)
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    code, shown = await _called(api, "GET", path, headers=table)
    if code != 200 or len(shown["rows"]) != 1:
        message = f"{stored!r} is shown as {code} {shown!r}"
        raise WrongError(message)
    for method, raw, headers in (
        ("PUT", json.dumps(stored).encode(), json_type),
        ("PUT", written_yaml(stored).encode(), {"content-type": "application/yaml"}),
        ("PATCH", b"{}", {"content-type": "application/merge-patch+json"}),
        ("PATCH", b"[]", {"content-type": "application/json-patch+json"}),
    ):
        code, again = await _called(api, method, path, raw, headers=headers)
        if code != 200 or again["metadata"].get("resourceVersion") != version:
            message = f"{stored!r} is sent again with {method} {raw[:20]!r}: {code} {again!r}"
            raise WrongError(message)


TARGET: Final = Target(
    "objects", run, seconds_max=2.0, seconds_per_kib=0.1, bytes_max=32 << 20, close=close, share=1.5
)
