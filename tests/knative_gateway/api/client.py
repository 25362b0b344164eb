"""Requests to the API without a socket: the application is called as a server would call it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from knative_gateway.api import Api

TRIGGERS = "/apis/eventing.knative.dev/v1/namespaces/default/triggers"
BROKERS = "/apis/eventing.knative.dev/v1/namespaces/default/brokers"
MERGE = {"content-type": "application/merge-patch+json"}
JSON_PATCH = {"content-type": "application/json-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}
TABLE = {
    "accept": (
        "application/json;as=Table;v=v1;g=meta.k8s.io,"
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    )
}


@dataclass(frozen=True)
class Answer:
    code: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return dict(self.headers).get(name, "")

    @property
    def warnings(self) -> list[str]:
        return [value for name, value in self.headers if name == "warning"]


def _scope(method: str, path: str, query: dict[str, str] | None, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": urlencode(query or {}).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }


async def call(
    api: Api,
    method: str,
    path: str,
    body: object = None,
    *,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    incoming = [{"type": "http.request", "body": raw, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop() if incoming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await api(
        _scope(
            method,
            path,
            query,
            {"content-type": "application/json", "user-agent": "tests/1", **(headers or {})},
        ),
        receive,
        send,
    )
    head = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
    return Answer(sent[0]["status"], head, b"".join(message.get("body", b"") for message in sent[1:]))


@asynccontextmanager
async def watching(
    api: Api, path: str, query: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a watch until the end of the block, when the client leaves."""
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            pieces.put_nowait(message["body"])

    async def serve() -> None:
        await api(_scope("GET", path, {"watch": "true", **(query or {})}, headers or {}), receive, send)
        pieces.put_nowait(None)

    async def events() -> AsyncIterator[Any]:
        line = b""
        while (piece := await asyncio.wait_for(pieces.get(), 60)) is not None:
            line += piece
            if line.endswith(b"\n"):
                yield json.loads(line)
                line = b""

    task = asyncio.create_task(serve())
    try:
        yield events()
    finally:
        gone.set()
        with suppress(asyncio.CancelledError):
            await task


def trigger(name: str = "t", **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": name},
        "spec": {"broker": "default", "subscriber": {"uri": "http://127.0.0.1/"}, **spec},
    }


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def definition(
    group: str = "serving.knative.dev", kind: str = "Service", plural: str = "services"
) -> dict[str, Any]:
    """A CustomResourceDefinition with two versions."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions: list[dict[str, Any]] = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": schema,
            "subresources": {"status": {}},
        }
        for name in ("v1", "v1beta1")
    ]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": ["ksvc"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }
