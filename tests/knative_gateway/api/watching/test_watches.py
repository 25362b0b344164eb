"""Watches: existing objects, new ones, objects that begin to match, and the end of a watch."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from knative_gateway.api import Api, handlers
from knative_gateway.api.negotiation import Form
from knative_gateway.api.watching import Client, Watches, lines, watches
from knative_gateway.security.access import Gate, Identity
from knative_gateway.store import Store, open_store, sqlite_url
from tests.knative_gateway.api.client import MERGE, TABLE, TRIGGERS, call, config_map, trigger, watching

Told = list[tuple[str, str]]


async def take(events: AsyncIterator[Any], count: int) -> Told:
    taken = [await anext(events) for _ in range(count)]
    return [(event["type"], event["object"]["metadata"]["name"]) for event in taken]


async def label(api: Api, name: str, value: str | None) -> None:
    assert (
        await call(api, "PATCH", f"{TRIGGERS}/{name}", {"metadata": {"labels": {"l": value}}}, headers=MERGE)
    ).code == 200


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_a_watch_of_no_version_begins_with_what_is_there(api: Api, query: dict[str, str]) -> None:
    await call(api, "POST", TRIGGERS, trigger("a"))
    async with watching(api, TRIGGERS, query) as events:
        assert await take(events, 1) == [("ADDED", "a")]
        await label(api, "a", "x")
        await call(api, "DELETE", f"{TRIGGERS}/a")
        assert await take(events, 2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_of_a_version_continues_after_it(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger("a"))
    version = (await call(api, "GET", TRIGGERS)).json["metadata"]["resourceVersion"]
    await call(api, "POST", TRIGGERS, trigger("b"))
    await call(api, "POST", TRIGGERS.replace("default", "elsewhere"), trigger("no"))
    await call(api, "POST", "/api/v1/namespaces/default/configmaps", config_map("no"))
    await call(api, "POST", TRIGGERS, trigger("c"))
    async with watching(api, TRIGGERS, {"resourceVersion": version}) as events:
        assert await take(events, 2) == [("ADDED", "b"), ("ADDED", "c")]
    async with watching(api, f"{TRIGGERS}/c", {"resourceVersion": version}) as events:
        assert await take(events, 1) == [("ADDED", "c")]


async def test_watches_are_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "WATCHES_MAX", 1)
    await call(api, "POST", TRIGGERS, trigger("a"))
    async with watching(api, TRIGGERS) as events:
        assert await take(events, 1) == [("ADDED", "a")]
        refused = await call(api, "GET", TRIGGERS, query={"watch": "true"})
        assert (refused.code, refused.json["reason"], refused.header("retry-after")) == (
            429,
            "TooManyRequests",
            "5",
        )
    async with watching(api, TRIGGERS) as events:
        assert await take(events, 1) == [("ADDED", "a")]


async def test_objects_that_begin_to_match_are_added_and_others_deleted(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger("a"))
    version = (await call(api, "GET", TRIGGERS)).json["metadata"]["resourceVersion"]
    async with watching(api, TRIGGERS, {"resourceVersion": version, "labelSelector": "l=x"}) as events:
        for value in ("y", "x", "x", "z", "w", "x"):
            await label(api, "a", value)
        await call(api, "PATCH", f"{TRIGGERS}/a", {"spec": {"delivery": {"retry": 1}}}, headers=MERGE)
        await call(api, "DELETE", f"{TRIGGERS}/a")
        assert await take(events, 5) == [
            ("ADDED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
        ]


async def test_one_object_is_watched_by_its_name(api: Api) -> None:
    for name in ("a", "b"):
        await call(api, "POST", TRIGGERS, trigger(name))
    async with watching(api, TRIGGERS, {"fieldSelector": "metadata.name=b"}) as events:
        assert await take(events, 1) == [("ADDED", "b")]


async def test_kubectl_gets_tables(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger("a"))
    async with watching(api, TRIGGERS, headers=TABLE) as events:
        event = await anext(events)
        assert (event["object"]["kind"], event["object"]["rows"][0]["cells"][0]) == ("Table", "a")


async def test_the_time_of_a_watch_is_over_when_the_client_said(api: Api) -> None:
    query = {"timeoutSeconds": "1", "resourceVersion": "2", "allowWatchBookmarks": "true"}
    async with watching(api, TRIGGERS, query) as events:
        assert [
            (event["type"], event["object"]["kind"], event["object"]["metadata"]["resourceVersion"])
            async for event in events
        ] == [("BOOKMARK", "Trigger", "2")]


async def test_bookmarks_report_versions_without_an_event_for_this_watch(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "BOOKMARK_S", 0.1)
    for form, kind in (
        (TABLE, "Table"),
        ({"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io"}, "PartialObjectMetadata"),
    ):
        async with watching(
            api, TRIGGERS, {"resourceVersion": "1", "allowWatchBookmarks": "1"}, form
        ) as events:
            assert (await anext(events))["object"]["kind"] == kind
    async with watching(api, TRIGGERS, {"resourceVersion": "1", "allowWatchBookmarks": "true"}) as events:
        await call(api, "POST", "/api/v1/namespaces/default/configmaps", config_map())
        async for event in events:
            assert event["type"] == "BOOKMARK"
            if event["object"]["metadata"]["resourceVersion"] == "3":
                break


async def test_initial_events_end_with_a_bookmark_that_says_so(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger("a"))
    query = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    async with watching(api, TRIGGERS, query) as events:
        assert (await anext(events))["type"] == "ADDED"
        end = await anext(events)
        assert (end["type"], end["object"]["metadata"]["annotations"]) == (
            "BOOKMARK",
            {"k8s.io/initial-events-end": "true"},
        )


async def test_a_version_that_is_too_old_or_unheard_of_ends_in_410(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path), changes_max=2) as store:
        api = Api(store.resources, store.cursors)
        await api.start()
        for name in "abcd":
            await call(api, "POST", TRIGGERS, trigger(name))
    async with open_store(sqlite_url(tmp_path), changes_max=2) as store:
        api = Api(store.resources, store.cursors)
        await api.start()
        for version in ("1", "1000"):
            async with watching(api, TRIGGERS, {"resourceVersion": version}) as events:
                event = await anext(events)
                assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
                    "ERROR",
                    410,
                    "Expired",
                )
        await api.close()


async def test_watches_end_when_the_api_closes(api: Api) -> None:
    async with watching(api, TRIGGERS) as events:
        await call(api, "POST", TRIGGERS, trigger("a"))
        assert await take(events, 1) == [("ADDED", "a")]
        await api.close()
        assert [event async for event in events] == []


async def test_watches_end_when_the_store_closes(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)) as store:
        api = Api(store.resources, store.cursors)
        await api.start()
        await call(api, "POST", TRIGGERS, trigger("a"))
        stack = watching(api, TRIGGERS)
        events = await stack.__aenter__()
        assert await take(events, 1) == [("ADDED", "a")]
    assert [event async for event in events] == []
    await stack.__aexit__(None, None, None)
    await api.close()


async def test_a_watch_that_cannot_be_read_is_refused(api: Api, store: Store) -> None:
    for query in ({"resourceVersion": "x"}, {"timeoutSeconds": "-1"}, {"labelSelector": "=="}):
        assert (await call(api, "GET", TRIGGERS, query={"watch": "true", **query})).code == 400


class Revocable:
    """One token, until it is revoked."""

    def __init__(self) -> None:
        self.revoked = False

    def identity(self, token: str) -> Identity | None:
        return None if self.revoked or token != "mine" else Identity("me")


async def test_a_watch_ends_with_its_token(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "ALLOWED_S", 0.01)
    tokens = Revocable()
    api = Api(store.resources, store.cursors, gate=Gate([tokens]))
    await api.start()
    headers = {"authorization": "Bearer mine"}
    async with watching(api, TRIGGERS, headers=headers) as events:
        assert (await call(api, "POST", TRIGGERS, trigger("a"), headers=headers)).code == 201
        assert await take(events, 1) == [("ADDED", "a")]
        tokens.revoked = True
        assert [event async for event in events] == []
    await api.close()


async def test_an_initial_list_ends_with_its_token(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reader takes as long for it as it likes."""
    monkeypatch.setattr(watches, "ALLOWED_OBJECTS", 2)
    api = Api(store.resources, store.cursors)
    await api.start()
    for name in "abcd":
        await call(api, "POST", TRIGGERS, trigger(name))
    asked: list[bool] = []

    def allowed() -> bool:
        asked.append(True)
        return len(asked) < 2

    kind = api.definitions.registry.find("eventing.knative.dev", "v1", "triggers")
    assert kind is not None
    watch = watches.watch_of(kind, "", "", {}, Form.PLAIN)
    every = Watches(api.objects, store.resources, asyncio.Event(), now_ms=lambda: 0)
    assert len([line async for line in every.lines(watch, Client("me", allowed))]) == 2
    await api.close()


async def read_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch, count: int, clients: int, query: dict[str, str] | None = None
) -> tuple[list[Told], int]:
    """What clients get that watch at the same time, and the most events that one iteration has made."""
    made = 0
    pieces = lines.pieces

    def counted(line: bytes) -> Iterator[bytes]:
        nonlocal made
        made += 1
        return pieces(line)

    monkeypatch.setattr(watches, "pieces", counted)

    async def read() -> Told:
        async with watching(api, TRIGGERS, query) as events:
            return await take(events, count)

    reading = [asyncio.create_task(read()) for _ in range(clients)]
    seen = [0]
    while not all(task.done() for task in reading):
        await asyncio.sleep(0)
        seen.append(made)
    most = max(later - earlier for earlier, later in pairwise(seen))
    return [task.result() for task in reading], most


async def test_many_watches_that_begin_with_many_objects_take_turns(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, clients = 3 * watches.OBJECTS_A_TURN, 5
    for number in range(count):
        await call(api, "POST", TRIGGERS, trigger(f"t{number:03}"))
    got, most = await read_at_once(api, monkeypatch, count, clients)
    assert [len(each) for each in got] == [count] * clients
    assert most <= 2 * watches.OBJECTS_A_TURN


async def test_many_watches_with_many_changes_take_turns(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin at an old version, or many changes come while they wait."""
    await call(api, "POST", TRIGGERS, trigger("a"))
    version = (await call(api, "GET", TRIGGERS)).json["metadata"]["resourceVersion"]
    count, clients = 3 * watches.CHANGES_A_TURN, 20
    for number in range(count):
        await label(api, "a", str(number))
    got, most = await read_at_once(api, monkeypatch, count, clients, {"resourceVersion": version})
    assert got == [[("MODIFIED", "a")] * count] * clients
    assert most <= watches.CHANGES_A_TURN + 1


async def test_an_initial_list_ends_when_the_gateway_closes(store: Store) -> None:
    api, closing = Api(store.resources, store.cursors), asyncio.Event()
    await api.start()
    for number in range(2 * watches.OBJECTS_A_TURN):
        await call(api, "POST", TRIGGERS, trigger(f"t{number:03}"))
    kind = api.definitions.registry.find("eventing.knative.dev", "v1", "triggers")
    assert kind is not None
    every = Watches(api.objects, store.resources, closing, now_ms=lambda: 0)
    watch, sent = watches.watch_of(kind, "", "", {}, Form.PLAIN), 0
    async for _ in every.lines(watch, Client("me", lambda: True)):
        sent += 1
        closing.set()
    assert sent == watches.OBJECTS_A_TURN
    await api.close()


async def test_no_watch_lasts_longer_than_an_hour(api: Api) -> None:
    kind = api.definitions.registry.find("eventing.knative.dev", "v1", "triggers")
    assert kind is not None
    assert (
        watches.watch_of(kind, "", "", {"timeoutSeconds": "999999"}, Form.PLAIN).timeout_s
        == watches.TIMEOUT_S
    )
