"""The Kubernetes API of the simulated gateways, as its users call it."""

import json
from collections.abc import Mapping
from typing import Any, Final

from knative_gateway.ports import BackoffPolicy, Delivery
from tests.simulation_gateway.http_peer import call
from tests.simulation_gateway.network import Network

EVENTING: Final = "/apis/eventing.knative.dev/v1"
MESSAGING: Final = "/apis/messaging.knative.dev/v1"
NAMESPACE: Final = "/namespaces/default"
PLURALS: Final = {
    "Broker": f"{EVENTING}{NAMESPACE}/brokers",
    "Trigger": f"{EVENTING}{NAMESPACE}/triggers",
    "Channel": f"{MESSAGING}{NAMESPACE}/channels",
    "Subscription": f"{MESSAGING}{NAMESPACE}/subscriptions",
    "ConfigMap": f"/api/v1{NAMESPACE}/configmaps",
}
VERSIONS: Final = {
    "Broker": "eventing.knative.dev/v1",
    "Trigger": "eventing.knative.dev/v1",
    "Channel": "messaging.knative.dev/v1",
    "Subscription": "messaging.knative.dev/v1",
    "ConfigMap": "v1",
}
Document = dict[str, Any]


class ApiClient:
    """Calls one gateway."""

    def __init__(self, network: Network, address: tuple[str, int]) -> None:
        self._network: Final = network
        self._address: Final = address

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, media: str = "application/json"
    ) -> tuple[int, Document]:
        """The status and the document; status 0: no answer."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = await call(
            self._network, self._address, method, path, headers=[("content-type", media)], body=data
        )
        if answer is None:
            return 0, {}
        try:
            return answer.status, json.loads(answer.body)
        except ValueError:
            return answer.status, {}

    async def create(
        self, kind: str, name: str, annotations: Mapping[str, str], **fields: Any
    ) -> tuple[int, Document]:
        metadata = {"name": name, "annotations": dict(annotations)}
        body = {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, **fields}
        return await self._call("POST", PLURALS[kind], body)

    async def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> tuple[int, Document]:
        return await self._call("PATCH", f"{PLURALS[kind]}/{name}", change, "application/merge-patch+json")

    async def delete(self, kind: str, name: str) -> int:
        return (await self._call("DELETE", f"{PLURALS[kind]}/{name}"))[0]

    async def act(self, kind: str, name: str, action: str, **options: Any) -> int:
        return (await self._call("POST", f"{PLURALS[kind]}/{name}/{action}", options))[0]

    async def get(self, path: str) -> tuple[int, Document]:
        return await self._call("GET", path)

    async def list(self, kind: str) -> list[Document] | None:
        """Return all objects of a kind; None: no answer."""
        status, document = await self._call("GET", PLURALS[kind])
        return document["items"] if status == 200 else None


def is_ready(object_: Document) -> bool:
    """Whether the status claims that the object works, in its present form."""
    status, metadata = object_.get("status", {}), object_["metadata"]
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
    return ready and status.get("observedGeneration") == metadata.get("generation")


def delivery_spec(delivery: Delivery, sink: str | None) -> Document:
    """The DeliverySpec of these options. `sink`: the URL of the dead letter sink."""
    spec: Document = {
        "retry": delivery.retry,
        "backoffPolicy": delivery.backoff_policy.value,
        "backoffDelay": f"PT{delivery.backoff_delay_ms / 1000:g}S",
    }
    if delivery.timeout_ms is not None:
        spec["timeout"] = f"PT{delivery.timeout_ms / 1000:g}S"
    if delivery.retry_after_max_ms is not None:
        spec["retryAfterMax"] = f"PT{delivery.retry_after_max_ms / 1000:g}S"
    if sink is not None:
        spec["deadLetterSink"] = {"uri": sink}
    return spec


DEFAULT: Final = Delivery(retry=10, backoff_policy=BackoffPolicy.EXPONENTIAL, backoff_delay_ms=200)
"""The `delivery` of a Trigger that does not set one."""
