"""The rules for recipients of events, each with its document and section: the obligations of the ingress."""

import asyncio

import pytest

from event_formats.amqp_binding import decode
from knative_gateway.ingress.app import Ingress
from knative_gateway.ports import Route
from tests.knative_gateway.asking import BINARY, BROKER, CHANNEL, EVENT, STRUCTURED, Answered, ask, routes
from tests.knative_gateway.memory_log import MemoryEventLog

BOTH = pytest.mark.parametrize("route", [BROKER, CHANNEL], ids=["broker", "channel"])


@pytest.fixture
async def log() -> MemoryEventLog:
    logs = MemoryEventLog()
    for route in (BROKER, CHANNEL):
        await logs.ensure(route.log, partitions=1, retention_ms=None)
    return logs


@pytest.fixture
def app(log: MemoryEventLog) -> Ingress:
    ingress = Ingress(log)
    ingress.use(routes(BROKER, CHANNEL))
    return ingress


async def answered(app: Ingress, *arguments: object, **more: object) -> Answered:
    got = await ask(app, *arguments, **more)  # type: ignore[arg-type]
    assert got is not None
    return got


@BOTH
async def test_recipients_take_binary_and_structured_events_of_1_0(
    app: Ingress, log: MemoryEventLog, route: Route
) -> None:
    """data-plane-contract, Minimum supported protocol:

    MUST support CloudEvents 1.0, binary and structured. test-spec, same section.
    """
    assert (await answered(app, route.path, BINARY, b'{"a": 1}')).status == 202
    assert (await answered(app, route.path, STRUCTURED, EVENT)).status == 202
    for message in log.messages(route.log):
        event = decode(message)
        assert (event.attributes["specversion"], event.attributes["id"], event.data) == (
            "1.0",
            "1",
            b'{"a": 1}',
        )


@BOTH
async def test_options_say_that_post_is_taken(app: Ingress, route: Route) -> None:
    """data-plane-contract, HTTP Verbs: if OPTIONS is implemented, MUST indicate POST with `Allow`. test-spec,
    HTTP Verbs.
    """
    told = await answered(app, route.path, (("webhook-request-origin", "x"),), b"", method="OPTIONS")
    assert told.status == 200
    assert "POST" in told.headers["allow"].split(", ")
    assert (told.headers["webhook-allowed-origin"], told.headers["webhook-allowed-rate"]) == ("*", "*")


@BOTH
async def test_an_event_is_not_accepted_before_it_is_stored(
    app: Ingress, log: MemoryEventLog, route: Route
) -> None:
    """data-plane-contract, Event Acknowledgement: MUST NOT accept until handled (stored in stable storage).

    test-spec, Content Based Routing and Topology Based Routing: before acknowledging, MUST durably enqueue
    the event.
    """
    log.gate.clear()
    asked = asyncio.create_task(answered(app, route.path))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    assert not log.messages(route.log)
    log.gate.set()
    assert (await asked).status == 202
    assert len(log.messages(route.log)) == 1


@BOTH
async def test_the_status_decides_whether_an_event_is_accepted(app: Ingress, route: Route) -> None:
    """data-plane-contract and test-spec, Event Acknowledgement:

    MUST use the code; 202 accepted, 400 unparsable, 404 no endpoint.
    """
    assert (await answered(app, route.path)).status == 202
    assert (await answered(app, route.path, BINARY[:3])).status == 400
    assert (await answered(app, route.path + "x")).status == 404


@BOTH
async def test_duplicates_are_accepted(app: Ingress, log: MemoryEventLog, route: Route) -> None:
    """data-plane-contract, Event Acknowledgement: MUST accept duplicates; test-spec: need not detect them."""
    assert [(await answered(app, route.path)).status for _ in range(2)] == [202, 202]
    assert len(log.messages(route.log)) == 2


async def test_duplicates_are_recognized_by_source_and_id(app: Ingress, log: MemoryEventLog) -> None:
    """data-plane-contract, Event Acknowledgement:

    MUST use source and id; test-spec: if detection is implemented, MUST use them.
    """
    app.use(
        routes(Route("uid-2", "Channel", "default", "c", CHANNEL.path, CHANNEL.log, duplicates_ms=60_000))
    )
    other_source = tuple((name, "/other" if name == "ce-source" else value) for name, value in BINARY)
    other_id = tuple((name, "2" if name == "ce-id" else value) for name, value in BINARY)
    for headers in (BINARY, (*BINARY, ("ce-traceparent", "00-2")), other_source, other_id, BINARY):
        assert (await answered(app, CHANNEL.path, headers)).status == 202
    assert len(log.messages(CHANNEL.log)) == 3


@BOTH
@pytest.mark.parametrize("data", [b"", b"\x00\xff\r\n", b' {"b":1 ,"a":1.0}\n', "é".encode("latin-1")])
async def test_the_data_is_not_modified(app: Ingress, log: MemoryEventLog, route: Route, data: bytes) -> None:
    """test-spec, Content Based Routing and Topology Based Routing: MUST NOT modify the event data."""
    assert (await answered(app, route.path, BINARY, data)).status == 202
    assert decode(log.messages(route.log)[0]).data == data


@BOTH
async def test_0_3_is_taken_and_not_upgraded(app: Ingress, log: MemoryEventLog, route: Route) -> None:
    """data-plane-contract, HTTP Verbs: senders SHOULD use the binding of 1.0. Events of older versions are
    accepted unchanged.
    """
    old = tuple((name, "0.3" if name == "ce-specversion" else value) for name, value in BINARY)
    assert (await answered(app, route.path, (*old, ("ce-schemaurl", "/x")))).status == 202
    attributes = decode(log.messages(route.log)[0]).attributes
    assert (attributes["specversion"], attributes["schemaurl"]) == ("0.3", "/x")


@pytest.mark.parametrize("missing", ["ce-id", "ce-source", "ce-type", "ce-specversion"])
async def test_each_required_attribute_is_missed(app: Ingress, log: MemoryEventLog, missing: str) -> None:
    """test-spec, Event Acknowledgement: 400, unparsable event; the answer names the missing attribute."""
    told = await answered(app, BROKER.path, tuple(header for header in BINARY if header[0] != missing))
    assert told.status == 400
    assert missing.removeprefix("ce-").encode() in told.body
    assert not log.messages(BROKER.log)


async def test_an_answer_has_no_event(app: Ingress) -> None:
    """data-plane-contract, Derived (Reply) Events: a recipient that never replies answers 202, with
    nothing.
    """
    told = await answered(app, BROKER.path, (*BINARY, ("prefer", "reply")))
    assert (told.status, told.body) == (202, b"")
    assert not [name for name in told.headers if name.startswith("ce-")]
