"""kill -9 of the gateway, of its node, or of both, at random moments, while senders send and subscribers
fail, on the same state.

Invariants: each event that was answered with 202 reaches each Trigger or Subscription that it matches, or its
dead letter sink, at least once, with its data. Nothing else arrives. Each attempt has a cause: it is the
first, or follows a failed attempt or a kill.

`make crash` runs GATEWAY_ROUNDS=30 from a seed that it prints. `SEED=n` repeats the same moments.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml
from aiohttp import web

from examples.gateway import GatewayProcess

ROUNDS: Final = int(os.environ.get("CRASH_GATEWAY_ROUNDS") or 2)
SEED: Final = int(
    os.environ.get("CRASH_SEED")
    or (1 if "CRASH_GATEWAY_ROUNDS" not in os.environ else time.time_ns() % 1_000_000)
)
SENDERS: Final = 8
EVENTS_MAX: Final = 1500
"""Sent in one round, at most."""
SETTLED_S_MAX: Final = 120.0
BROKER: Final = "/broker/default/crash"
CHANNEL: Final = "/channel/default/crash"

Status = int | None
"""None: the connection is cut."""


@dataclass(frozen=True)
class Subscribed:
    """One Trigger or Subscription of the test. `answer`: what its subscriber does, given the number of the
    attempt for the event.
    """

    name: str
    path: str
    type: str | None
    retry: int
    answer: Callable[[random.Random, int], Status]
    order: str = "unordered"

    def wants(self, path: str, type_: str) -> bool:
        """Return whether the subscriber must get an event."""
        return path == self.path and self.type in (None, type_)


def _flaky(chance: random.Random, attempt: int) -> Status:
    """Three of four at first, all in the end: within its retries."""
    return 202 if attempt >= 4 or chance.random() < 0.75 else chance.choice([503, 429, 500, 404, None])


SUBSCRIBED: Final = (
    Subscribed("all", BROKER, None, 20, _flaky),
    Subscribed("even", BROKER, "even", 1, lambda chance, _: 200 if chance.random() < 0.5 else 503),
    Subscribed("odd", BROKER, "odd", 1, lambda _, __: 500),
    Subscribed("refused", BROKER, "even", 5, lambda _, __: 400),
    Subscribed("keyed", BROKER, "odd", 20, _flaky, order="key"),
    Subscribed("copy", CHANNEL, None, 20, _flaky),
)


@dataclass(frozen=True)
class Sent:
    """One event in one POST. `status` None: no answer, because of `reason`."""

    path: str
    type: str
    data: bytes
    posted: float
    ended: float
    status: int | None
    reason: str


@dataclass(frozen=True)
class Attempt:
    """One request that a subscriber or a sink got."""

    at: float
    status: Status
    data: bytes
    code: str | None


@dataclass
class World:
    """All sent events, and all received requests."""

    chance: random.Random
    sent: dict[str, Sent] = field(default_factory=dict)
    came: dict[tuple[str, str], list[Attempt]] = field(default_factory=dict)
    buried: dict[tuple[str, str], list[Attempt]] = field(default_factory=dict)
    gateway_kills: list[float] = field(default_factory=list)
    gateway_ends: list[float] = field(default_factory=list)
    """When the process ended. For some time after a kill, the sockets still accept connections, and reset
    them.
    """
    node_kills: list[float] = field(default_factory=list)

    @property
    def accepted(self) -> dict[str, Sent]:
        """The events that were answered with 202."""
        return {id_: event for id_, event in self.sent.items() if event.status == 202}

    async def take(self, request: web.Request) -> web.StreamResponse:
        """A subscriber's or, below /dead/, a sink's answer."""
        data = await request.read()
        kind, name = request.match_info["kind"], request.match_info["name"]
        id_ = request.headers["ce-id"]
        if kind == "dead":
            self.buried.setdefault((name, id_), []).append(
                Attempt(time.monotonic(), 202, data, request.headers.get("ce-knativeerrorcode"))
            )
            return web.Response(status=202)
        attempts = self.came.setdefault((name, id_), [])
        (subscribed,) = (each for each in SUBSCRIBED if each.name == name)
        status = subscribed.answer(self.chance, len(attempts) + 1)
        attempts.append(Attempt(time.monotonic(), status, data, None))
        if status is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        return web.Response(status=status, headers={"retry-after": "0"} if status == 429 else {})

    def missing(self) -> list[tuple[str, str]]:
        """Return the deliveries that are due and did not happen."""
        return [
            (subscribed.name, id_)
            for id_, event in self.accepted.items()
            for subscribed in SUBSCRIBED
            if subscribed.wants(event.path, event.type)
            and not self.buried.get((subscribed.name, id_))
            and not any(_took(one) for one in self.came.get((subscribed.name, id_), ()))
        ]

    def kills(self, since: float, until: float) -> tuple[int, int]:
        """Return how often gateway and node were killed between two moments."""
        return sum(since <= at <= until for at in self.gateway_kills), sum(
            since <= at <= until for at in self.node_kills
        )


def _took(attempt: Attempt) -> bool:
    return attempt.status is not None and 200 <= attempt.status < 300


def objects(base: str) -> str:
    """The resources, in YAML."""
    documents: list[object] = [
        {
            "apiVersion": "eventing.knative.dev/v1",
            "kind": "Broker",
            "metadata": {"name": "crash", "namespace": "default"},
        },
        {
            "apiVersion": "messaging.knative.dev/v1",
            "kind": "Channel",
            "metadata": {"name": "crash", "namespace": "default"},
        },
    ]
    for each in SUBSCRIBED:
        delivery = {
            "retry": each.retry,
            "backoffDelay": "PT0.02S",
            "backoffPolicy": "linear",
            "backoffMax": "PT0.1S",
        }
        spec: dict[str, object] = {
            "subscriber": {"uri": f"{base}/live/{each.name}"},
            "delivery": {**delivery, "deadLetterSink": {"uri": f"{base}/dead/{each.name}"}},
        }
        metadata = {
            "name": each.name,
            "namespace": "default",
            "annotations": {"knative-gateway/order": each.order},
        }
        if each.path == BROKER:
            spec |= {
                "broker": "crash",
                **({"filter": {"attributes": {"type": each.type}}} if each.type else {}),
            }
            documents.append(
                {
                    "apiVersion": "eventing.knative.dev/v1",
                    "kind": "Trigger",
                    "metadata": metadata,
                    "spec": spec,
                }
            )
        else:
            spec["channel"] = {"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "crash"}
            documents.append(
                {
                    "apiVersion": "messaging.knative.dev/v1",
                    "kind": "Subscription",
                    "metadata": metadata,
                    "spec": spec,
                }
            )
    return yaml.safe_dump_all(documents)


async def send(world: World, gateway: GatewayProcess, name: str, done: asyncio.Event) -> None:
    """POST events of our own, each once, until it is enough."""
    async with aiohttp.ClientSession() as session:
        for number in range(EVENTS_MAX // SENDERS):
            if done.is_set():
                return
            id_, type_ = f"{name}.{number}", "odd" if number % 2 else "even"
            path = CHANNEL if number % 5 == 4 else BROKER
            data = f"{id_} ".encode() * (number * 7 % 100)
            headers = {
                "ce-specversion": "1.0",
                "ce-id": id_,
                "ce-source": "/crash",
                "ce-type": type_,
                "ce-partitionkey": f"{name} {number % 3}",
            }
            posted, status, reason = time.monotonic(), None, ""
            try:
                status = await _post(
                    session, gateway.base_url + path, data, {**headers, "content-type": "text/plain"}
                )
            except aiohttp.ClientError as error:
                reason = repr(error)
            world.sent[id_] = Sent(path, type_, data, posted, time.monotonic(), status, reason)
            if status == 503:
                await asyncio.sleep(0.02)


async def _post(session: aiohttp.ClientSession, url: str, data: bytes, headers: dict[str, str]) -> int:
    """The status of the answer. Without a listener nothing is sent, and the request is retried."""
    while True:
        try:
            async with session.post(url, data=data, headers=headers) as answer:
                return answer.status
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.05)


async def one_round(world: World, gateway: GatewayProcess, number: int) -> None:
    """Senders send, subscribers fail, and a process is killed. The gateway is restarted, and the gateway
    restarts its node.
    """
    before = len(world.accepted)
    done = asyncio.Event()
    tasks = [asyncio.create_task(send(world, gateway, f"{number}.{each}", done)) for each in range(SENDERS)]
    async with asyncio.timeout(60):
        while len(world.accepted) < before + 20:  # noqa: ASYNC110 no event reports it
            await asyncio.sleep(0.005)
    await asyncio.sleep(world.chance.uniform(0, 0.5))
    victim = world.chance.choice(["gateway", "node", "both"])
    node = gateway.node_pid
    if victim in ("node", "both") and node is not None:
        world.node_kills.append(time.monotonic())
        os.kill(node, signal.SIGKILL)
    if victim in ("gateway", "both"):
        world.gateway_kills.append(time.monotonic())
        await asyncio.to_thread(gateway.kill)
        world.gateway_ends.append(time.monotonic())
        await asyncio.sleep(world.chance.uniform(0, 0.1))
        await asyncio.to_thread(gateway.start)
    await asyncio.sleep(world.chance.uniform(0, 0.5))
    done.set()
    await asyncio.gather(*tasks)
    kills = len(world.gateway_kills), len(world.node_kills)
    print(
        f"round {number}: {victim} killed; {len(world.accepted)} accepted of {len(world.sent)}; {kills} kills"
        " so far"
    )


async def settled(world: World, gateway: GatewayProcess) -> None:
    """Wait until everything that is owed has been delivered."""
    deadline = time.monotonic() + SETTLED_S_MAX
    while (missing := world.missing()) and time.monotonic() < deadline:  # noqa: ASYNC110 no event reports it
        await asyncio.sleep(0.1)
    assert not missing, (
        f"{len(missing)} deliveries are missing, such as {missing[:5]}\n{gateway.words[-3000:]}"
    )


def explain(world: World) -> None:
    """Check that each received request has a cause."""
    assert not (other := [event for event in world.sent.values() if event.status not in (202, 503, None)]), (
        other[:5]
    )
    dying = list(zip(world.gateway_kills, world.gateway_ends, strict=True))
    cut = [
        event
        for event in world.sent.values()
        if event.status is None
        and not any(killed <= event.ended and event.posted <= gone for killed, gone in dying)
    ]
    assert not cut, f"no answer, though the gateway lived: {cut[:5]}"
    subscribed = {each.name: each for each in SUBSCRIBED}
    for (name, id_), attempts in [*world.came.items(), *world.buried.items()]:
        event = world.sent[id_]  # no process invents events
        assert subscribed[name].wants(event.path, event.type), (name, id_)
        assert {one.data for one in attempts} == {event.data}, (name, id_)
    for (name, id_), attempts in world.came.items():
        posted, most = world.sent[id_].posted, subscribed[name].retry + 1
        answered = 0
        for index, attempt in enumerate(attempts):
            gateways, nodes = world.kills(posted, attempt.at)
            # A node that dies may leave two copies of what its sender was not answered; a gateway that does
            # begins again. What was cut may
            # have met a kept-alive connection at its end: then it is sent once more without that being an
            # attempt.
            begun = (1 + gateways) * (1 + nodes)
            assert answered < most * begun, (name, id_, attempts)
            assert index < 2 * most * begun, (name, id_, attempts)
            answered += attempt.status is not None
            if index and _took(attempts[index - 1]):
                assert gateways + nodes, (
                    f"{name}: {id_} came again though it was taken and nobody was killed: {attempts}"
                )
    for (name, id_), letters in world.buried.items():
        attempts = [one for one in world.came[name, id_] if one.at <= letters[0].at]
        assert attempts, "no dead letter without an attempt"
        if not sum(world.kills(world.sent[id_].posted, letters[-1].at)):
            assert len(letters) == 1, (name, id_, letters)
            assert not any(map(_took, attempts)), (name, id_)
            tried = 1 if attempts[0].status == 400 else subscribed[name].retry + 1
            assert len(attempts) == tried, (name, id_, attempts)


@pytest.mark.timeout(60 + 60 * ROUNDS)
async def test_every_accepted_event_is_delivered_and_each_attempt_has_a_cause_whichever_process_is_killed(
    tmp_path: Path,
) -> None:
    print(f"\nSEED={SEED} GATEWAY_ROUNDS={ROUNDS}")
    world = World(random.Random(SEED))
    app = web.Application()
    app.router.add_post("/{kind}/{name}", world.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        with GatewayProcess(tmp_path / "gateway") as gateway:
            await asyncio.to_thread(gateway.apply, objects(f"http://{host}:{port}"))
            for number in range(ROUNDS):
                await one_round(world, gateway, number)
            await settled(world, gateway)
            explain(world)
            assert "Traceback" not in gateway.words, gateway.words
            assert await asyncio.to_thread(gateway.stop) == 0
    finally:
        await runner.cleanup()
    attempts = sum(map(len, world.came.values()))
    print(
        f"{len(world.accepted)} accepted, {attempts} attempts, {sum(map(len, world.buried.values()))} dead"
        " letters: all explained"
    )
