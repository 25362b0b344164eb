"""One HTTP server for all subscribers of a case, and the calls by which a case creates objects and sends
events.

A subscriber's path is its name; what arrived is kept by path. Nothing of an event but its id is kept.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

CREATING_AT_ONCE: Final = 8
READY_EVERY_S: Final = 0.25

KINDS: Final = {
    "ConfigMap": "v1",
    "Broker": "eventing.knative.dev/v1",
    "Trigger": "eventing.knative.dev/v1",
    "Channel": "messaging.knative.dev/v1",
    "Subscription": "messaging.knative.dev/v1",
}


WITH_STATUS: Final = ("Broker", "Trigger", "Channel", "Subscription")


def broker(name: str, *, config: str | None = None) -> dict[str, Any]:
    """A Broker as its creator writes it; `config`: the ConfigMap with the settings of its log."""
    spec = {} if config is None else {"config": {"apiVersion": "v1", "kind": "ConfigMap", "name": config}}
    return {"kind": "Broker", "metadata": {"name": name}, "spec": spec}


def partitions(config: str, count: int) -> dict[str, Any]:
    """A ConfigMap that gives a Broker's log so many partitions."""
    return {"kind": "ConfigMap", "metadata": {"name": config}, "data": {"partitions": str(count)}}


def trigger(name: str, broker_name: str, url: str, type_: str | None = None) -> dict[str, Any]:
    """A Trigger for all events of a Broker, or for those of one type."""
    spec: dict[str, Any] = {"broker": broker_name, "subscriber": {"uri": url}}
    if type_ is not None:
        spec["filter"] = {"attributes": {"type": type_}}
    return {"kind": "Trigger", "metadata": {"name": name}, "spec": spec}


def channel(name: str) -> dict[str, Any]:
    """A Channel as its creator writes it."""
    return {"kind": "Channel", "metadata": {"name": name}, "spec": {}}


@dataclass
class Crowd:
    """All subscribers, each with a path of its own. Use it with `async with`."""

    came: dict[str, Counter[str]] = field(default_factory=dict)
    url: str = ""
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None

    async def _take(self, request: web.Request) -> web.Response:
        await request.read()
        path, id_ = request.match_info["name"], request.headers.get("ce-id", "")
        answer = await self.answer(path, id_)
        if answer.status < 300:
            self.came.setdefault(path, Counter())[id_] += 1
            async with self._more:
                self._more.notify_all()
        return answer

    async def answer(self, path: str, id_: str) -> web.Response:  # noqa: ARG002  for subclasses
        """What a subscriber says to one event; a subclass may fail, wait or reply.

        Counted as taken if it is a success.
        """
        return web.Response(status=202)

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until that holds, looked at after each delivery.

        Raises:
            TimeoutError: it does not hold in time.
        """
        async with asyncio.timeout(seconds), self._more:
            while not holds():
                await self._more.wait()

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=32 << 20)
        application.router.add_post("/{name}", self._take)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


class Api:
    """A gateway's API and ingress over one HTTP session. Use it with `async with`."""

    def __init__(self, base_url: str) -> None:
        self._base: Final = base_url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=64)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def create(self, objects: Iterable[Mapping[str, Any]], namespace: str = "default") -> None:
        """Create objects, CREATING_AT_ONCE at a time.

        Raises:
            RuntimeError: one is refused; with the answer.
        """
        waiting = iter(objects)

        async def some() -> None:
            for one in waiting:
                await self._create(one, namespace)

        await asyncio.gather(*(some() for _ in range(CREATING_AT_ONCE)))

    async def _create(self, one: Mapping[str, Any], namespace: str) -> None:
        assert self._session is not None
        path = f"{_root(one['kind'])}/namespaces/{namespace}/{one['kind'].lower()}s"
        async with self._session.post(
            self._base + path, json={"apiVersion": KINDS[one["kind"]], **one}
        ) as answer:
            if answer.status >= 300:
                message = f"POST {path}: {answer.status}: {(await answer.text())[:500]}"
                raise RuntimeError(message)

    async def get(self, path: str) -> Any:
        """A document of the API.

        Raises:
            RuntimeError: the gateway refuses; with the answer.
        """
        assert self._session is not None
        async with self._session.get(self._base + path) as answer:
            text = await answer.text()
            if answer.status >= 300:
                message = f"GET {path}: {answer.status}: {text[:500]}"
                raise RuntimeError(message)
            return json.loads(text)

    async def unready(self, kinds: Iterable[str] = WITH_STATUS, namespace: str | None = None) -> list[str]:
        """The objects of these kinds that are not Ready, with their condition."""
        within = "" if namespace is None else f"/namespaces/{namespace}"
        lists = [await self.get(f"{_root(kind)}{within}/{kind.lower()}s") for kind in kinds]
        return [
            f"{one['metadata']['namespace']}/{one['metadata']['name']}: {ready or 'no Ready condition'}"
            for found in lists
            for one in found["items"]
            if (ready := ready_condition(one)).get("status") != "True"
        ]

    async def wait_ready(
        self, seconds: float, kinds: Iterable[str] = WITH_STATUS, namespace: str | None = None
    ) -> None:
        """Until every object of these kinds is Ready.

        Raises:
            RuntimeError: some are not in time; with the first ten.
        """
        kinds, left = tuple(kinds), seconds
        while missing := await self.unready(kinds, namespace):
            if left <= 0:
                message = (
                    f"{len(missing)} objects are not Ready after {seconds:.0f} s: {'; '.join(missing[:10])}"
                )
                raise RuntimeError(message)
            await asyncio.sleep(READY_EVERY_S)
            left -= READY_EVERY_S

    async def send(
        self,
        path: str,
        id_: str,
        *,
        type_: str = "t",
        data: bytes = b"{}",
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """POST one event in binary mode; the status."""
        assert self._session is not None
        binary = {
            "ce-specversion": "1.0",
            "ce-id": id_,
            "ce-source": "/scale",
            "ce-type": type_,
            "content-type": "application/json",
        }
        async with self._session.post(
            self._base + path, data=data, headers={**binary, **(headers or {})}
        ) as answer:
            await answer.read()
            return answer.status

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        """POST anything at all; the status."""
        assert self._session is not None
        async with self._session.post(self._base + path, data=body, headers=dict(headers)) as answer:
            await answer.read()
            return answer.status


def ready_condition(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an object, if its status is about its newest generation; empty if it is not, or has none."""
    status = one.get("status") or {}
    if status.get("observedGeneration") != one["metadata"].get("generation"):
        return {}
    return next((each for each in status.get("conditions", ()) if each["type"] == "Ready"), {})


def _root(kind: str) -> str:
    return "/api/v1" if KINDS[kind] == "v1" else f"/apis/{KINDS[kind]}"
