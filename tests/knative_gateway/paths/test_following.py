"""The path of an event names who gets it, why the others do not, and where its dead letters and replies
are.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from amqp_streams.client import Event
from event_formats.amqp_binding import encode
from event_formats.http_binding import to_binary
from knative_gateway.dispatcher.subscribers.standing import State
from knative_gateway.filters import Expression, compile_expression, dialects, validation
from knative_gateway.paths import following
from knative_gateway.paths.following import ATTEMPTS_MAX, CHARACTER_STEPS, ORIGINS_MAX
from knative_gateway.ports import Delivery, Route
from knative_gateway.trying import STEPS_MAX
from tests.knative_gateway.dispatcher.rig import LOG, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer
from tests.knative_gateway.paths.rig import BROKER, PathsRig, broker

DEAD = "broker.default.dead"
SINK = "http://gateway.example/broker/default/dead"


def dead(**fields: Any) -> Route:
    return Route("uid-of-dead", "Broker", "default", "dead", "/broker/default/dead", DEAD, (), **fields)


@pytest.fixture
async def rig() -> AsyncIterator[PathsRig]:
    async with PathsRig(partitions=1) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


async def test_those_that_get_the_event_come_first_and_the_others_say_why_not(
    rig: PathsRig, server: SubscriberServer
) -> None:
    await rig.serve(
        subscriber("a", server.url(), filters=[{"exact": {"type": "other"}}]),
        subscriber("b", server.url(), filters=[{"prefix": {"source": "/s"}}, {"cesql": "celsius > 30"}]),
        subscriber("z", server.url(), filters=[{"exact": {"type": "t"}}]),
    )
    await rig.send(event(0, celsius="20", data=b'{"a": 1}'))
    answer = await rig.trace()
    assert answer["event"]["attributes"]["celsius"] == "20"
    assert answer["event"]["data"] == '{"a": 1}'
    assert (answer["total"], answer["matching"]) == (3, 1)
    assert [(row["name"], row.get("reason")) for row in answer["subscribers"]] == [
        ("z", None),
        ("a", "filters[0].exact does not match"),
        ("b", "filters[1].cesql is false"),
    ]
    assert all("state" not in row for row in answer["subscribers"][1:])


async def test_ten_thousand_subscribers_are_shown_page_by_page(rig: PathsRig) -> None:
    """None of them runs: the page of an answer costs what it shows, and not the number of subscribers."""
    many = [
        subscriber(f"u{number:05d}", "http://127.0.0.1:9/", filters=[{"exact": {"type": f"t{number}"}}])
        for number in range(10_000)
    ]
    await rig.serve(subscriber("own", "http://127.0.0.1:9/", paused=True))
    await rig.send(event(0, type_="t7777"))
    worker = rig.dispatcher.worker_at("/broker/default/b")
    assert worker is not None
    worker.wanted = broker(*many)
    seen: list[str] = []
    for skip in range(0, 10_000, 100):
        answer = await rig.trace(limit=100, skip=skip) if skip in {0, 9_900} else {"subscribers": []}
        seen += [row["name"] for row in answer["subscribers"]]
    assert len(seen) == len(set(seen)) == 200
    assert (await rig.trace(limit=1, skip=20_000))["subscribers"] == []


async def test_an_event_that_is_given_is_only_matched(rig: PathsRig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("u", server.url(), filters=[{"exact": {"type": "t"}}]))
    given = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {}}
    answer: Any = await rig.paths.trace(BROKER, {"event": given})
    [row] = answer["subscribers"]
    assert row == {"kind": "Trigger", "namespace": "default", "name": "u", "matches": True}
    assert server.got == []


async def test_a_dead_letter_is_found_in_its_broker_and_leads_back(
    rig: PathsRig, server: SubscriberServer
) -> None:
    await rig.log.ensure(DEAD, partitions=2, retention_ms=None)
    delivery = Delivery(dead_letter_url=SINK)
    failing = subscriber("u", server.url("/bad?secret"), delivery=delivery)
    server.answers = [400]
    rig.sender.inside = None
    letter = event(0, deadlettersubscriberuri=server.url("/bad?secret"), knativeerrorcode=400)
    other = event(0, deadlettersubscriberuri="http://other.example/")
    for each in (event(5), letter, other, event(6)):
        await rig.log.append(DEAD, encode(each))
    # The sink is this Broker: what is stored there is what the ingress would store.
    accepting = replace(
        failing, delivery=replace(delivery, dead_letter_url=server.url("/broker/default/dead"))
    )
    await rig.use(broker(accepting), dead())
    await rig.send(event(0))
    row = await rig.reaches(State.DEAD_LETTERED)
    found = row["dead_letter"]
    assert (found["kind"], found["name"]) == ("Broker", "dead")
    # The search is by id, source and subscriber, so the letter of the other subscriber is not it.
    [expected] = [
        (each.partition, int(each.offset))
        for part in rig.memory.logs[DEAD]
        for each in part
        if each.message == encode(letter)
    ]
    assert (found["partition"], found["offset"]) == expected
    letters = {**BROKER, "metadata": {"namespace": "default", "name": "dead", "uid": "uid-of-dead"}}
    back: Any = await rig.paths.trace(letters, {"partition": expected[0], "offset": expected[1]})
    assert back["origins"] == [{"kind": "Broker", "namespace": "default", "name": "b"}]
    assert len(back["origins"]) <= ORIGINS_MAX


@pytest.mark.parametrize("field", ["dead_letter", "reply"])
async def test_a_sink_in_another_namespace_is_as_one_that_does_not_exist(
    rig: PathsRig, server: SubscriberServer, field: str
) -> None:
    """Otherwise anyone could ask for the names of another namespace."""
    elsewhere = replace(dead(), namespace="vault", path="/broker/vault/dead")
    await rig.log.ensure(DEAD, partitions=1, retention_ms=None)
    await rig.log.append(DEAD, encode(event(0, deadlettersubscriberuri=server.url("/bad"))))
    urls = [server.url("/broker/vault/dead"), server.url("/broker/vault/none"), server.url("/sink")]
    answer = to_binary(event("answer", "answered", b"yes"))
    is_reply = field == "reply"
    server.answers = [
        web.Response(body=answer.body, headers=dict(answer.headers)) if path == "/bad" and is_reply else 400
        for path in ["/bad"] * 3
    ]
    subscribers = [
        replace(subscriber(f"u{number}", server.url("/bad")), reply_log=None, reply_url=url)
        if is_reply
        else subscriber(f"u{number}", server.url("/bad"), delivery=Delivery(dead_letter_url=url))
        for number, url in enumerate(urls)
    ]
    await rig.use(broker(*subscribers), elsewhere)
    await rig.send(event(0))
    rows: list[Any] = []
    async with asyncio.timeout(60):
        while not rows or any(field not in row for row in rows):
            rows = (await rig.trace())["subscribers"]
            await asyncio.sleep(0.002)
    found = [{**row[field], "at_ms": 0} for row in rows]
    place = "sent_to" if is_reply else "sink"
    assert [each.pop(place) for each in found] == urls
    assert found[0] == found[1] == found[2]
    assert "not a Broker or Channel of this namespace" in found[0]["note"]


async def test_a_reply_is_found_in_the_log_of_the_broker(rig: PathsRig, server: SubscriberServer) -> None:
    answer = to_binary(event("answer", "answered", b"yes"))
    server.answers = [web.Response(body=answer.body, headers=dict(answer.headers))]
    await rig.serve(subscriber("u", server.url(), filters=[{"exact": {"type": "t"}}]))
    await rig.send(event(0))
    await until(lambda: len(rig.memory.logs[LOG][0]) == 2)
    row = await rig.reaches(State.DELIVERED)
    assert (row["reply"]["id"], row["reply"]["offset"]) == ("answer", 1)
    assert row["state"] == State.DELIVERED


async def test_a_filter_that_fails_for_the_event_hides_no_other(
    rig: PathsRig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knative_gateway.filters.index.STEPS_MAX", 100)
    monkeypatch.setattr(following, "STEPS_MAX", 3000)
    monkeypatch.setattr(following, "CHARACTER_STEPS", 1)
    await rig.serve(
        *(
            subscriber(
                f"u{number}", server.url(), filters=[{"cesql": f"a LIKE '%x%y%' OR a LIKE '%{number}%y%'"}]
            )
            for number in range(8)
        )
    )
    await rig.send(event(0, a="x" * 500))
    answer = await rig.trace()
    assert answer["matching"] is None
    assert {row["matches"] for row in answer["subscribers"]} == {False, None}
    assert "too many steps" in answer["subscribers"][-1]["reason"]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that are compiled from now on."""
    texts: list[str] = []

    def counted(text: str, **more: Any) -> Expression:
        texts.append(text)
        return compile_expression(text, **more)

    for module in (dialects, validation):
        monkeypatch.setattr(module, "compile_expression", counted)
    return texts


async def traced_with(rig: PathsRig, texts: Sequence[str], compiled: list[str]) -> Any:
    """The path of an event, with a Trigger for each expression; only what the request compiles is counted."""
    made = [
        subscriber(f"u{number:03d}", "http://127.0.0.1:9/", filters=[{"cesql": text}])
        for number, text in enumerate(texts)
    ]
    await rig.serve(subscriber("own", "http://127.0.0.1:9/", paused=True))
    await rig.send(event(0))
    worker = rig.dispatcher.worker_at("/broker/default/b")
    assert worker is not None
    worker.wanted = broker(*made)
    compiled.clear()
    return await rig.trace(limit=100)


async def test_a_request_compiles_so_many_characters_and_each_expression_once(
    rig: PathsRig, compiled: list[str]
) -> None:
    tail = " OR a = '"
    large = [f"a = '{number:03d}'{tail}{'x' * (8192 - 19)}'" for number in range(100)]
    assert {len(text) for text in large} <= set(range(8000, 8193))
    answer = await traced_with(rig, large, compiled)
    assert len(compiled) == len(set(compiled)) > 1
    assert sum(map(len, compiled)) <= STEPS_MAX / CHARACTER_STEPS
    rows = answer["subscribers"]
    assert [row["matches"] for row in rows] == [False] * len(compiled) + [None] * (100 - len(compiled))
    assert "fails" in rows[0]["reason"]
    assert rows[-1]["reason"].startswith("not evaluated")


async def test_filters_that_are_too_long_alone_have_a_reason_in_a_request_of_their_own(
    rig: PathsRig, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "STEPS_MAX", 1000)
    answer = await traced_with(rig, ["a = '1'", "a = '2'"], compiled)
    assert [row["matches"] for row in answer["subscribers"]] == [False, None]
    again = await rig.trace(limit=100, skip=1)
    assert [row["matches"] for row in again["subscribers"]] == [False]


async def test_equal_filters_and_those_that_match_are_not_compiled_again(
    rig: PathsRig, compiled: list[str]
) -> None:
    answer = await traced_with(rig, ["type = 'other'"] * 100, compiled)
    assert {row["matches"] for row in answer["subscribers"]} == {False}
    assert compiled == ["type = 'other'"]
    matching = subscriber("own", "http://127.0.0.1:9/", filters=[{"cesql": "type = 't'"}], paused=True)
    await rig.serve(matching)
    compiled.clear()
    assert [row["matches"] for row in (await rig.trace())["subscribers"]] == [True]
    assert compiled == []


async def test_a_message_that_is_not_a_cloudevent_has_no_subscriber(
    rig: PathsRig, server: SubscriberServer
) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.log.append(LOG, Event(b"x").encode())
    answer = await rig.trace()
    assert answer["event"]["problem"]
    assert answer["subscribers"][0]["matches"] is False
    assert answer["subscribers"][0]["reason"] == "the stored message is not a CloudEvent"


async def test_the_attempts_of_an_event_are_bounded(rig: PathsRig, server: SubscriberServer) -> None:
    server.answers = [503] * (ATTEMPTS_MAX + 10)
    delivery = Delivery(retry=ATTEMPTS_MAX + 20, backoff_delay_ms=0)
    await rig.serve(subscriber("u", server.url(), delivery=delivery))
    await rig.send(event(0))
    row = await rig.reaches(State.DELIVERED)
    assert len(row["attempts"]) == ATTEMPTS_MAX
