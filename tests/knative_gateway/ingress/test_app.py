"""Requests to the ingress without a server, into logs in memory."""

import asyncio
import itertools
import json
from dataclasses import replace

import pytest

from event_formats.amqp_binding import decode, passed_on
from knative_gateway.errors import ForbiddenError, OverloadedError, UnauthenticatedError, UnavailableError
from knative_gateway.ingress import app as ingress_app
from knative_gateway.ingress.app import EVENTS_A_TURN, Ingress, IngressLimits
from knative_gateway.ports import Route
from knative_gateway.security.access import Gate, Identity, Rule
from tests.knative_gateway.asking import BATCH, BINARY, BROKER, CHANNEL, EVENT, STRUCTURED, ask, routes
from tests.knative_gateway.dispatcher.rig import until
from tests.knative_gateway.memory_log import MemoryEventLog

SMALL = b'{"specversion":"1.0","id":"1","source":"/s","type":"t"}'
DEDUPLICATED = replace(CHANNEL, duplicates_ms=60_000)


@pytest.fixture
async def log() -> MemoryEventLog:
    logs = MemoryEventLog()
    for route in (BROKER, CHANNEL):
        await logs.ensure(route.log, partitions=1, retention_ms=None)
    return logs


@pytest.fixture
def app(log: MemoryEventLog) -> Ingress:
    ingress = Ingress(log, limits=IngressLimits(body_bytes=200, batch_events=2, body_s=0.05))
    ingress.use(routes(BROKER, CHANNEL))
    return ingress


async def test_an_event_is_stored_with_its_bytes(app: Ingress, log: MemoryEventLog) -> None:
    answered = await ask(app, body=b' {"a" : 1}\n')
    assert answered is not None
    assert (answered.status, answered.body, answered.headers["allow"]) == (202, b"", "POST, OPTIONS")
    event = decode(log.messages(BROKER.log)[0])
    assert event.data == b' {"a" : 1}\n'
    assert event.attributes["knativebrokerttl"] == 255


async def test_no_client_learns_that_a_broker_does_not_exist_before_all_are_known(app: Ingress) -> None:
    """404 is an end for many senders: 503 is not."""
    app.starting = True
    for method in ("POST", "OPTIONS"):
        answered = await ask(app, "/broker/default/later", method=method)
        assert answered is not None
        assert (answered.status, answered.headers["retry-after"]) == (503, "1")
    known = await ask(app)
    assert known is not None
    assert known.status == 202
    app.starting = False
    answered = await ask(app, "/broker/default/later")
    assert answered is not None
    assert answered.status == 404
    assert app.figures.unknown == 1


@pytest.mark.parametrize(
    ("known", "status"), [(True, 503), (False, 404), (UnavailableError("the database is away"), 503)]
)
async def test_a_broker_that_another_replica_knows_is_not_unknown(
    app: Ingress, known: bool | UnavailableError, status: int
) -> None:
    asked: list[str] = []

    async def addressed(path: str) -> bool:
        asked.append(path)
        if isinstance(known, UnavailableError):
            raise known
        return known

    app.addressed = addressed
    answered = await ask(app, "/broker/default/new/")
    assert answered is not None
    assert (answered.status, asked) == (status, ["/broker/default/new"])
    assert app.figures.unknown == (status == 404)


async def test_a_body_in_pieces_is_put_together(app: Ingress, log: MemoryEventLog) -> None:
    answered = await ask(app, CHANNEL.path + "/", body=[b"ab", b"", b"cd", b"e"])
    assert answered is not None
    assert answered.status == 202
    assert decode(log.messages(CHANNEL.log)[0]).data == b"abcde"


async def test_a_batch_is_stored_event_by_event(app: Ingress, log: MemoryEventLog) -> None:
    answered = await ask(
        app, headers=BATCH, body=b"[" + EVENT + b"," + EVENT.replace(b'"1","s', b'"2","s') + b"]"
    )
    assert answered is not None
    assert answered.status == 202
    assert [decode(message).attributes["id"] for message in log.messages(BROKER.log)] == ["1", "2"]
    assert app.figures.of(BROKER).events == 2


async def test_one_failure_fails_the_batch(app: Ingress, log: MemoryEventLog) -> None:
    log.failing = [OverloadedError("full", retry_after_s=3)]
    answered = await ask(app, headers=BATCH, body=b"[" + EVENT + b"," + EVENT + b"]")
    assert answered is not None
    assert (answered.status, answered.headers["retry-after"]) == (429, "3")


@pytest.mark.parametrize(
    ("path", "method", "headers", "body", "status", "words"),
    [
        ("/", "POST", BINARY, b"", 404, "does not exist"),
        ("/broker/default/x", "OPTIONS", BINARY, b"", 404, "does not exist"),
        (BROKER.path, "GET", BINARY, b"", 405, "must be POST"),
        (BROKER.path, "PUT", BINARY, b"", 405, "must be POST"),
        (BROKER.path, "POST", BINARY[1:], b"", 400, "ce-specversion"),
        (BROKER.path, "POST", STRUCTURED, b"{", 400, "not valid JSON"),
        (BROKER.path, "POST", (*BINARY, ("content-length", "201")), b"", 413, "200 bytes"),
        (BROKER.path, "POST", BINARY, b"x" * 201, 413, "200 bytes"),
        (BROKER.path, "POST", BINARY, [b"x" * 150, b"x" * 51, b""], 413, "200 bytes"),
        (BROKER.path, "POST", BATCH, b"[" + b",".join([SMALL] * 3) + b"]", 413, "more than 2 events"),
        (BROKER.path, "POST", (("content-type", "application/cloudevents+xml"),), b"", 415, "xml"),
        (BROKER.path, "POST", (*BINARY, ("content-encoding", "br")), b"", 415, "Content-Encoding"),
        (BROKER.path, "POST", (*BINARY, ("ce-knativebrokerttl", "1")), b"", 400, "went through too many"),
    ],
)
async def test_a_producer_is_notified_of_events_that_are_not_accepted(
    app: Ingress,
    log: MemoryEventLog,
    *,
    path: str,
    method: str,
    headers: tuple[tuple[str, str], ...],
    body: bytes,
    status: int,
    words: str,
) -> None:
    answered = await ask(app, path, headers, body, method=method)
    assert answered is not None
    assert answered.status == status
    assert words.encode() in answered.body
    assert answered.headers["allow"] == "POST, OPTIONS"
    assert not log.messages(BROKER.log)


async def test_a_body_without_an_end_costs_its_connection(app: Ingress) -> None:
    told = await ask(app, body=[b"x" * 150, b"x" * 150, b""])
    assert told is not None
    assert told.headers["connection"] == "close"
    told = await ask(app, headers=(*BINARY, ("content-length", "300")), body=[b"x" * 300])
    assert told is not None
    assert "connection" not in told.headers


async def test_a_body_that_does_not_come_is_waited_for_a_while(app: Ingress) -> None:
    """408, after the time for a body."""

    async def receive() -> dict[str, object]:
        if pieces:
            return pieces.pop()
        await asyncio.Event().wait()
        raise AssertionError

    pieces: list[dict[str, object]] = [{"type": "http.request", "body": b"x", "more_body": True}]
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": BROKER.path, "headers": []}, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("successor", [(), (replace(BROKER, uid="another"),)])
async def test_an_event_for_a_broker_that_is_removed_while_the_body_arrives_is_not_stored(
    app: Ingress, log: MemoryEventLog, successor: tuple[Route, ...]
) -> None:
    """Also if a successor has the same path and the same name of the log."""

    async def receive() -> dict[str, object]:
        app.use(routes(*successor, version=2))
        return {"type": "http.request", "body": b"x", "more_body": False}

    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(f"ce-{name}".encode(), b"1.0") for name in ("specversion", "id", "source", "type")]
    scope = {"type": "http", "method": "POST", "path": BROKER.path, "headers": [(b"host", b"x"), *headers]}
    await app(scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 404
    assert not any(log.logs[BROKER.log])


async def test_a_client_that_leaves_gets_no_answer_and_stores_nothing(
    app: Ingress, log: MemoryEventLog
) -> None:
    assert await ask(app, body=[b"a", b"b"], leave=True) is None
    assert not log.messages(BROKER.log)
    assert app.figures.of(BROKER).in_flight == 0


@pytest.mark.parametrize(
    ("error", "status"), [(OverloadedError("full", retry_after_s=2), 429), (UnavailableError("away"), 503)]
)
async def test_a_failed_append_is_reported(
    app: Ingress, log: MemoryEventLog, error: OverloadedError, status: int
) -> None:
    log.failing = [error]
    answered = await ask(app)
    assert answered is not None
    assert answered.status == status
    assert int(answered.headers["retry-after"]) >= 1


async def test_a_fault_of_the_node_is_reported_as_such(app: Ingress, log: MemoryEventLog) -> None:
    log.logs[BROKER.log] = []
    answered = await ask(app)
    assert answered is not None
    assert answered.status == 500
    assert b"ZeroDivision" not in answered.body


async def test_headers_that_are_passed_on_and_the_trace_go_with_the_event(
    app: Ingress, log: MemoryEventLog
) -> None:
    headers = (
        *BINARY,
        ("X-Request-Id", "r"),
        ("traceparent", "00-1"),
        ("authorization", "Bearer s"),
        ("knative-a", "b"),
    )
    await ask(app, CHANNEL.path, headers)
    [message] = log.messages(CHANNEL.log)
    assert passed_on(message) == [(b"x-request-id", b"r"), (b"knative-a", b"b")]
    assert decode(message).attributes["traceparent"] == "00-1"
    assert b"Bearer" not in message


class Doorkeeper:
    """Accepts every client that names a user."""

    async def may_send(self, authorization: str | None, route: Route) -> None:
        if authorization is None:
            raise UnauthenticatedError("who are you?")
        if route.name not in authorization:
            message = f"not to {route.name}"
            raise ForbiddenError(message)


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "GET"])
@pytest.mark.parametrize("authorization", [None, "Bearer x"])
async def test_a_client_that_may_not_send_does_not_learn_which_brokers_exist(
    log: MemoryEventLog, method: str, authorization: str | None
) -> None:
    app = Ingress(log, authorizer=Gate([Tokens()], [Rule(users=["x"], namespaces=["other"])]))
    app.use(routes(BROKER, CHANNEL))
    headers = BINARY if authorization is None else (*BINARY, ("authorization", authorization))
    there = await ask(app, BROKER.path, headers=headers, method=method)
    not_there = await ask(app, f"{BROKER.path}-not", headers=headers, method=method)
    assert there is not None
    assert not_there is not None
    assert there.status == not_there.status
    assert there.status == {"POST": 401 if authorization is None else 403, "OPTIONS": 200, "GET": 405}[method]
    assert there.body == not_there.body.replace(b"-not", b"")
    allowed = await ask(
        app, "/broker/other/not", headers=(*BINARY, ("authorization", "Bearer x")), method=method
    )
    assert allowed is not None
    assert allowed.status == 404


class Tokens:
    """Every token is the name of its user."""

    def identity(self, token: str) -> Identity:
        return Identity(token)


async def test_the_authorizer_decides(log: MemoryEventLog) -> None:
    app = Ingress(log, authorizer=Doorkeeper())
    app.use(routes(BROKER))
    for authorization, status in ((None, 401), ("Bearer x", 403), ("Bearer b", 202)):
        answered = await ask(
            app, headers=BINARY if authorization is None else (*BINARY, ("authorization", authorization))
        )
        assert answered is not None
        assert answered.status == status
    assert len(log.messages(BROKER.log)) == 1


async def test_duplicates_are_stored_unless_a_route_says_otherwise(app: Ingress, log: MemoryEventLog) -> None:
    """knative-eventing-test-spec: by source and id; other attributes may differ."""
    app.use(routes(BROKER, DEDUPLICATED))
    for path in (BROKER.path, CHANNEL.path):
        for headers in (BINARY, (*BINARY, ("ce-other", "x"))):
            answered = await ask(app, path, headers)
            assert answered is not None
            assert answered.status == 202
    assert len(log.messages(BROKER.log)) == 2
    assert len(log.messages(CHANNEL.log)) == 1
    assert app.figures.of(DEDUPLICATED).duplicates == 1
    app.use(routes(DEDUPLICATED, version=2))
    await ask(app, CHANNEL.path)
    assert len(log.messages(CHANNEL.log)) == 1
    app.use(routes(replace(DEDUPLICATED, duplicates_ms=1), version=3))
    await ask(app, CHANNEL.path)
    assert len(log.messages(CHANNEL.log)) == 2


async def test_a_duplicate_of_one_on_its_way_has_its_outcome(app: Ingress, log: MemoryEventLog) -> None:
    app.use(routes(DEDUPLICATED))
    for failing, status in ([UnavailableError("away")], 503), ([], 202):
        log.gate.clear()
        log.failing = list(failing)
        asked = [asyncio.create_task(ask(app, CHANNEL.path)) for _ in range(3)]
        await until(lambda: app.figures.of(DEDUPLICATED).in_flight == 3)
        log.gate.set()
        assert [answered.status for answered in await asyncio.gather(*asked) if answered] == [status] * 3
    assert len(log.messages(CHANNEL.log)) == 1


async def test_requests_are_counted(app: Ingress) -> None:
    await ask(app)
    await ask(app, headers=STRUCTURED, body=b"{")
    await ask(app, "/nowhere")
    figures = app.figures.of(BROKER)
    assert dict(figures.requests) == {202: 1, 400: 1}
    assert (figures.events, figures.bytes, app.figures.unknown, figures.in_flight) == (1, 8, 1, 0)


def many(count: int, *more: bytes) -> bytes:
    events = [SMALL.replace(b'"id":"1"', b'"id":"%d"' % number) for number in range(count)]
    return b"[" + b",".join([*events, *more]) + b"]"


@pytest.fixture
def roomy(log: MemoryEventLog) -> Ingress:
    ingress = Ingress(log)
    ingress.use(routes(BROKER, CHANNEL))
    return ingress


async def test_large_batches_are_read_and_stored_in_turns_and_whole(
    roomy: Ingress, log: MemoryEventLog
) -> None:
    count, clients = 10 * EVENTS_A_TURN, 5
    asking = [asyncio.create_task(ask(roomy, headers=BATCH, body=many(count))) for _ in range(clients)]
    stored = [0]
    while not all(task.done() for task in asking):
        await asyncio.sleep(0)
        stored.append(len(log.messages(BROKER.log)))
    assert [each.status for task in asking if (each := task.result())] == [202] * clients
    assert max(later - earlier for earlier, later in itertools.pairwise(stored)) <= 2 * EVENTS_A_TURN
    ids = [decode(message).attributes["id"] for message in log.messages(BROKER.log)]
    assert sorted(map(str, ids)) == sorted(clients * [str(number) for number in range(count)])


async def test_nothing_of_a_batch_is_stored_if_its_last_event_is_not_valid(
    roomy: Ingress, log: MemoryEventLog
) -> None:
    answered = await ask(roomy, headers=BATCH, body=many(3 * EVENTS_A_TURN, b"{}"))
    assert answered is not None
    assert (answered.status, b"event %d of the batch" % (3 * EVENTS_A_TURN) in answered.body) == (400, True)
    assert not log.messages(BROKER.log)


async def test_the_rest_of_a_batch_is_not_stored_when_its_request_ends(
    roomy: Ingress, log: MemoryEventLog
) -> None:
    asking = asyncio.create_task(ask(roomy, headers=BATCH, body=many(10 * EVENTS_A_TURN)))
    # Each iteration of the event loop, because the rest is stored in the next ones.
    while not log.messages(BROKER.log):  # noqa: ASYNC110  the log has no event for it
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    stored = len(log.messages(BROKER.log))
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(log.messages(BROKER.log)) == stored < 10 * EVENTS_A_TURN


@pytest.mark.parametrize("in_batch", [True, False])
async def test_a_large_event_is_parsed_in_turns(
    log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch, *, in_batch: bool
) -> None:
    """A call of the library's parser takes 140 ms for a million bytes of numbers."""
    data = json.dumps([1] * 100_000).encode()
    event = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":%b}' % data
    app = Ingress(log)
    app.use(routes(BROKER))
    turns, turn = 0, app._turns.turn

    async def counted() -> None:
        nonlocal turns
        turns += 1
        await turn()

    monkeypatch.setattr(app._turns, "turn", counted)
    monkeypatch.setattr(ingress_app, "STEP_S", 0.0)
    answered = await ask(
        app, headers=BATCH if in_batch else STRUCTURED, body=b"[%b]" % event if in_batch else event
    )
    assert answered is not None
    assert answered.status == 202
    assert decode(log.messages(BROKER.log)[0]).data == data
    assert turns > 20


async def test_a_large_event_that_is_not_valid_is_refused(log: MemoryEventLog) -> None:
    app = Ingress(log)
    app.use(routes(BROKER))
    event = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":[%b1 2]}' % (b"1," * 50_000)
    answered = await ask(app, headers=STRUCTURED, body=event)
    assert answered is not None
    assert (answered.status, b"expecting ','" in answered.body) == (400, True)
