"""Events of the gateway itself: they need no token, but may go only where their namespace may send."""

import pytest

from event_formats.amqp_binding import decode
from knative_gateway.ingress.app import Ingress
from knative_gateway.ingress.inside import Inside
from knative_gateway.security.access import Gate, Identity, Rule, Verb
from knative_gateway.security.inward import Inward, user_of
from tests.knative_gateway.asking import BINARY, BROKER, CHANNEL, ask, routes
from tests.knative_gateway.memory_log import MemoryEventLog

BASE = "http://127.0.0.1:8080"
HEADERS = [(name.encode(), value.encode()) for name, value in BINARY]


class AnyToken:
    def identity(self, token: str) -> Identity | None:
        return Identity(token)


@pytest.fixture
async def log() -> MemoryEventLog:
    logs = MemoryEventLog()
    for route in (BROKER, CHANNEL):
        await logs.ensure(route.log, partitions=1, retention_ms=None)
    return logs


def inside(log: MemoryEventLog, *rules: Rule) -> tuple[Inside, Ingress]:
    gate = Gate([AnyToken()], rules)
    ingress = Ingress(log, authorizer=gate)
    ingress.use(routes(BROKER, CHANNEL))
    return Inside(ingress, Inward(BASE, gate.may_pass)), ingress


@pytest.mark.parametrize("route", [BROKER, CHANNEL])
async def test_an_event_of_the_same_namespace_is_stored_without_a_token(
    log: MemoryEventLog, route: object
) -> None:
    door, ingress = inside(log, Rule(users=["nobody"]))
    path = route.path  # type: ignore[attr-defined]
    assert door.leads_in(BASE + path)
    assert (await door.take(BASE + path, "default", HEADERS, b"{}")).status == 202
    refused = await ask(ingress, path)
    assert refused is not None
    assert refused.status == 401
    [message] = log.messages(route.log)  # type: ignore[attr-defined]
    assert decode(message).data == b"{}"


async def test_another_namespace_needs_a_rule(log: MemoryEventLog) -> None:
    """Otherwise a user who may create a Trigger in one namespace could send to all namespaces."""
    rules = [
        Rule(users=["alice"]),
        Rule(users=[user_of("friend")], verbs=[Verb.SEND], namespaces=["default"]),
    ]
    door, _ = inside(log, *rules)
    answer = await door.take(BASE + BROKER.path, "stranger", HEADERS, b"{}")
    assert (answer.status, user_of("stranger") in str(answer.body["body"])) == (403, True)
    assert log.messages(BROKER.log) == []
    assert (await door.take(BASE + BROKER.path, "friend", HEADERS, b"{}")).status == 202


async def test_without_rules_or_tokens_every_namespace_may(log: MemoryEventLog) -> None:
    door, _ = inside(log)
    assert (await door.take(BASE + BROKER.path, "stranger", HEADERS, b"{}")).status == 202
    assert Gate().may_pass("a", "b")


async def test_a_missing_or_broken_destination_is_answered_as_over_http(log: MemoryEventLog) -> None:
    door, _ = inside(log)
    assert (await door.take(f"{BASE}/broker/default/gone", "default", HEADERS, b"{}")).status == 404
    assert (await door.take(BASE + BROKER.path, "default", HEADERS[1:], b"{}")).status == 400


async def test_a_token_cannot_be_that_of_a_namespace(log: MemoryEventLog) -> None:
    _, ingress = inside(log)
    refused = await ask(ingress, BROKER.path, (*BINARY, ("authorization", f"Bearer {user_of('default')}")))
    assert refused is not None
    assert refused.status == 401
