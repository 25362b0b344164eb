"""Which request goes to which application."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from knative_gateway.http.web import Figures, Web
from tests.knative_gateway.asking import ask


async def ingress(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse(f"ingress {scope['path']}")(scope, receive, send)


async def api(_request: object) -> PlainTextResponse:
    return PlainTextResponse("api")


def web(missing: list[str], *, is_local: bool = False) -> Web:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    return Web(
        ingress,
        Figures(registry).text,
        ready=lambda: missing[0] if missing else None,
        routes=[Route("/apis", api)],
        is_local=is_local,
    )


async def got(app: Web, path: str, method: str = "GET") -> tuple[int, str]:
    answered = await ask(app, path, [("host", "x")], b"", method=method)
    assert answered is not None
    return answered.status, answered.body.decode()


async def test_events_go_to_the_ingress_and_other_requests_elsewhere() -> None:
    app = web([])
    assert await got(app, "/broker/a/b", "POST") == (200, "ingress /broker/a/b")
    assert await got(app, "/channel/a/b") == (200, "ingress /channel/a/b")
    assert await got(app, "/apis") == (200, "api")
    assert (await got(app, "/nothing"))[0] == 404
    assert await got(app, "/healthz") == (200, "alive\n")
    assert "things_total 3.0" in (await got(app, "/metrics"))[1]


@pytest.mark.parametrize("path", ["/broker/a/b", "/apis"])
@pytest.mark.parametrize("hosts", [(), ("x", "x"), ("a b@c",), ("x/y",), ("x:y",), ("x", "a b@c")])
async def test_a_request_of_http_1_1_has_one_valid_host(path: str, hosts: Sequence[str]) -> None:
    """RFC 9112, 3.2: otherwise a server MUST answer 400."""
    app = web([])
    answered = await ask(app, path, [("host", host) for host in hosts], b"", method="POST")
    assert answered is not None
    assert answered.status == 400


@pytest.mark.parametrize(("hosts", "status"), [((), 200), (("x",), 200), (("x", "x"), 400), (("a b",), 400)])
async def test_a_request_of_http_1_0_may_leave_the_host_out(hosts: Sequence[str], status: int) -> None:
    app = web([])
    headers = [("host", host) for host in hosts]
    answered = await ask(app, "/broker/a/b", headers, b"", http_version="1.0")
    assert answered is not None
    assert answered.status == status


@pytest.mark.parametrize(("is_local", "status"), [(True, 421), (False, 200)])
async def test_a_page_of_another_site_does_not_reach_the_api_of_this_machine(
    is_local: bool, status: int
) -> None:
    app = web([], is_local=is_local)
    for path in ("/apis", "/metrics"):
        answered = await ask(app, path, [("host", "evil.example:8080")], b"", method="GET")
        assert answered is not None
        assert answered.status == status
    for path, host in (("/healthz", "evil.example"), ("/broker/a/b", "evil.example"), ("/apis", "[::1]:80")):
        answered = await ask(app, path, [("host", host)], b"", method="POST" if "broker" in path else "GET")
        assert answered is not None
        assert answered.status == 200


async def test_ready_says_what_is_missing() -> None:
    missing = ["the node is away"]
    app = web(missing)
    assert await got(app, "/readyz") == (503, "not ready: the node is away\n")
    missing.clear()
    assert await got(app, "/readyz") == (200, "ready\n")


async def test_an_event_does_not_wait_for_requests_to_the_api_that_came_before_it() -> None:
    """Otherwise clients that send many requests at once delay the events of all others."""
    begun: list[str] = []

    async def listing(_request: object) -> PlainTextResponse:
        begun.append("api")
        return PlainTextResponse("api")

    async def taking(scope: Any, receive: Any, send: Any) -> None:
        begun.append("event")
        await ingress(scope, receive, send)

    app = Web(taking, Figures(CollectorRegistry()).text, ready=lambda: None, routes=[Route("/apis", listing)])
    asking = [asyncio.create_task(got(app, "/apis")) for _ in range(20)]
    asking += [asyncio.create_task(got(app, path)) for path in ("/broker/a/b", "/channel/a/b")]
    assert await got(app, "/readyz") == (200, "ready\n")
    answered_after = len(begun)
    assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    assert begun.index("event") <= 2
    assert answered_after < 10, "probes do not wait either"


class Slow(Collector):
    """Metrics whose computation lasts until the test ends it. It runs in a thread, so that the event loop
    continues.
    """

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.begun.set()
        assert self.go.wait(60)
        yield from ()


async def test_the_figures_are_computed_in_a_thread_and_once_for_all_requests() -> None:
    """Thousands of subscribers take seconds: a scrape must not stop the events."""
    registry, slow = CollectorRegistry(auto_describe=False), Slow()
    slow.go.set()
    registry.register(slow)
    slow.go.clear()
    slow.begun.clear()
    figures = Figures(registry)
    asked = [asyncio.create_task(figures.text()) for _ in range(5)]
    assert await asyncio.to_thread(slow.begun.wait, 20), "the loop runs while they are made"
    assert not any(each.done() for each in asked)
    slow.go.set()
    texts = await asyncio.gather(*asked, figures.text())
    assert len(set(texts)) == 1
    assert figures.made == 1


async def test_changes_during_a_scrape_do_not_fail_it() -> None:
    class Changing(Collector):
        times = 0

        def collect(self) -> Iterator[Metric]:
            self.times += 1
            if self.times == 1:
                raise RuntimeError("dictionary changed size during iteration")
            yield from ()

    registry, changing = CollectorRegistry(), Changing()
    registry.register(changing)
    assert await Figures(registry).text() == b""
    assert changing.times == 2


async def test_figures_are_built_again_after_a_while() -> None:
    figures = Figures(CollectorRegistry(), kept_s=0)
    await figures.text()
    await figures.text()
    assert figures.made == 2


class Changing(Collector):
    """Figures that change while they are computed, the first time in a thread."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def collect(self) -> Iterator[Metric]:
        self.threads.append(threading.current_thread())
        if len(self.threads) == 1:
            raise RuntimeError("dictionary changed size during iteration")
        yield from ()


async def test_figures_that_changed_meanwhile_are_computed_again_in_a_thread() -> None:
    """On the event loop, the computation would delay events whenever a user creates and deletes Triggers."""
    registry, changing = CollectorRegistry(), Changing()
    registry.register(changing)
    await Figures(registry).text()
    assert len(changing.threads) == 2
    assert threading.main_thread() not in changing.threads
