"""What an answer of `$management` says about a change is on the disk: no crash undoes it."""

from collections.abc import Callable, Mapping

import pytest

from amqp_streams import names
from amqp_streams.errors import StorageError
from amqp_streams.node.requests import RequestSteps
from amqp_streams.streams.management import Answer, Request
from amqp_streams.wire.types import Value
from tests.amqp_streams.node.bench import Bench, attach, member


def begin(
    bench: Bench, operation: str, type_: str, name: str, body: Mapping[Value, Value] | None = None
) -> RequestSteps:
    return bench.node.managing(Request(operation, type_, name, body or {}, "me", 1, log="temps"))


def last(steps: RequestSteps) -> Answer:
    with pytest.raises(StopIteration) as ended:
        next(steps)
    answer = ended.value.value
    assert isinstance(answer, Answer)
    return answer


def id_of(bench: Bench) -> str:
    (cursor,) = bench.manage("QUERY", type_=names.CURSOR_TYPE)[2][names.CURSORS]
    return str(cursor[names.CURSOR_ID])


def with_cursor() -> tuple[Bench, str]:
    bench = Bench()
    bench.append(0)
    bench.detach(bench.consume(attach(consumer=True, link="s", durable=True)))
    bench.complete()
    return bench, id_of(bench)


def with_group() -> tuple[Bench, str]:
    bench = Bench()
    bench.append(0)
    bench.detach(bench.consume(member(partition=0, durable=True, epoch=5)))
    bench.complete()
    return bench, "g"


KINDS = [(with_cursor, names.CURSOR_TYPE), (with_group, names.GROUP_TYPE)]


@pytest.mark.parametrize(("given", "type_"), KINDS)
@pytest.mark.parametrize(
    ("operation", "body", "status"), [("DELETE", {}, 204), ("UPDATE", {"position": "@earliest"}, 200)]
)
def test_a_change_is_answered_when_it_is_on_the_disk(
    given: Callable[[], tuple[Bench, str]],
    type_: str,
    operation: str,
    body: Mapping[Value, Value],
    status: int,
) -> None:
    bench, name = given()
    before = bench.store.states.durable
    steps = begin(bench, operation, type_, name, body)
    wait = next(steps)
    assert wait is not None
    assert not wait.over
    assert bench.store.states.durable == before
    bench.complete()
    assert wait.over
    assert bench.store.states.durable != before
    assert last(steps).status == status


@pytest.mark.parametrize(("given", "type_"), KINDS)
def test_a_change_that_the_disk_refuses_is_an_error_and_can_be_repeated(
    given: Callable[[], tuple[Bench, str]], type_: str
) -> None:
    bench, name = given()
    steps = begin(bench, "DELETE", type_, name)
    next(steps)
    bench.complete(StorageError("the disk is gone"))
    assert last(steps) == Answer(
        500, "the change is not on the disk, send the request again: the disk is gone", None
    )
    again = begin(bench, "DELETE", type_, name)
    wait = next(again)
    assert wait is not None
    assert bench.store.states.durable, "it is missing, but only in memory"
    bench.complete()
    assert last(again).status == 404
    assert bench.store.states.durable == {}


def test_a_refusal_waits_for_nothing() -> None:
    bench = Bench()
    consumer = bench.consume(attach(consumer=True, link="s", durable=True))
    bench.append(0)
    assert bench.read(consumer) == [(0, 0)]
    bench.settle(consumer, (0, 0))
    bench.node.flush_cursors(0)
    assert bench.store.states.waiting
    assert last(begin(bench, "DELETE", names.CURSOR_TYPE, id_of(bench))).status == 409


def test_a_log_is_deleted_when_its_mark_is_on_the_disk() -> None:
    """Otherwise a crash in between leaves cursors that nothing removes."""
    bench, _ = with_cursor()
    steps = begin(bench, "DELETE", names.LOG_TYPE, "temps")
    wait = next(steps)
    assert wait is not None
    assert not wait.over
    assert "temps" in bench.store.logs
    bench.complete()
    assert last(steps).status == 204
    assert "temps" not in bench.store.logs
    bench.restart()
    bench.complete()
    assert bench.store.states.durable == {}


def test_a_log_can_be_deleted_when_its_mark_cannot_be_written() -> None:
    """A deletion makes space on a full disk."""
    bench, _ = with_cursor()
    steps = begin(bench, "DELETE", names.LOG_TYPE, "temps")
    next(steps)
    bench.complete(StorageError("the disk is full"))
    assert last(steps).status == 204


@pytest.mark.parametrize("again", [False, True])
def test_a_log_that_another_request_deletes_meanwhile_is_not_found(again: bool) -> None:
    bench, _ = with_cursor()
    steps = begin(bench, "DELETE", names.LOG_TYPE, "temps")
    next(steps)
    assert bench.manage("DELETE", "temps")[0] == 204
    if again:
        assert bench.manage("CREATE", "temps")[0] == 201
    bench.complete()
    assert last(steps).status == 404
    assert ("temps" in bench.store.logs) == again
