"""Requests carried out by their types and operations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import requests
from amqp_streams.node.requests import PAGE_PARTITIONS_MAX, carry_out, listed
from amqp_streams.streams.management import CONFLICT, Answer, Request, RequestError
from amqp_streams.streams.steps import Steps, finish
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import Value
from tests.amqp_streams.node.bench import Bench


def request(operation: str = "READ", type_: str = "t") -> Request:
    return Request(operation, type_, "name", {}, None, None)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError(CONFLICT, "words"), 409),
        (PeerError(names.UNAUTHORIZED_ACCESS, "words"), 403),
        (StorageError("words"), 500),
    ],
)
def test_errors_are_answered_with_a_status_and_a_message(error: Exception, status: int) -> None:
    def fail(_request: Request) -> Answer:
        raise error

    assert finish(carry_out({"t": {"READ": fail}}, request())) == Answer(status, "words")


def test_unknown_types_and_operations_are_refused_with_the_known_ones() -> None:
    types = {
        names.LOG_TYPE: {"READ": lambda _request: Answer(200, "log")},
        "t": {"READ": lambda _request: Answer(200, "t")},
    }
    assert finish(carry_out(types, request())).description == "t"
    assert finish(carry_out(types, request(type_=""))).description == "log"
    assert finish(carry_out(types, request("DANCE"))) == Answer(
        501, "unknown operation 'DANCE': known are READ"
    )
    unknown = finish(carry_out(types, request(type_="queue" * 50)))
    assert unknown.status == 501
    assert unknown.description.endswith(f"known are '{names.LOG_TYPE}', 't'")


def test_a_body_that_is_not_a_map_is_not_read_as_an_empty_one() -> None:
    """A client that sends settings as a list must not believe that they are in force."""
    types = {"t": {"UPDATE": lambda _request: Answer(200, "updated")}}
    assert finish(carry_out(types, replace(request("UPDATE"), well_formed=False))).status == 400
    assert finish(carry_out(types, request("UPDATE"))).status == 200


def steps_of(answering: requests.RequestSteps) -> tuple[int, Answer]:
    """Return the number of steps of an answer, and the answer."""
    steps = 0
    while True:
        try:
            next(answering)
        except StopIteration as ended:
            return steps, ended.value
        steps += 1


def page(items: Sequence[int], width: int, **asked: int) -> tuple[int, Answer]:
    query = replace(request("QUERY"), **asked)  # type: ignore[arg-type]  # offset and count are numbers
    return steps_of(listed("items", items, query, width=lambda _item: width, describe=described))


def described(item: int) -> Steps[dict[Value, Value]]:
    yield from ()
    return {"id": item}


def read(answer: Answer) -> Value:
    """The body, as a client reads it."""
    return decode(encode(answer.body))[0]


def test_a_list_is_answered_in_pages_that_describe_no_more_partitions_than_one_answer_may() -> None:
    wide = PAGE_PARTITIONS_MAX // 4
    seen: list[object] = []
    offset: int | None = 0
    while offset is not None:
        _, answer = page(range(10), wide, offset=offset)
        body = cast("dict[str, Any]", read(answer))
        seen += [item["id"] for item in body["items"]]
        assert len(body["items"]) <= 4
        offset = body.get("next")
    assert seen == list(range(10))


def test_a_page_has_at_least_one_item_however_wide_and_no_more_than_asked_for() -> None:
    assert read(page(range(3), PAGE_PARTITIONS_MAX * 2)[1]) == {"items": [{"id": 0}], "next": 1}
    assert read(page(range(9), 1, offset=4, count=2)[1]) == {"items": [{"id": 4}, {"id": 5}], "next": 6}
    assert read(page(range(9), 1, offset=8, count=2)[1]) == {"items": [{"id": 8}]}
    assert read(page(range(9), 1, offset=20)[1]) == {"items": []}


def test_long_answers_take_several_steps_between_which_others_have_their_turns() -> None:
    assert page(range(10), 1)[0] == 0
    assert page(range(1000), 1)[0] > 10


def test_extents_name_each_log_and_partition_once_and_are_bounded_in_their_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    monkeypatch.setattr(requests, "EXTENTS_MAX", 1000)
    logs: list[Value] = [f"log-{number}" for number in range(4)]
    for log in logs:
        bench.node.create(str(log), LogSettings(partitions=300))
    twice: list[Value] = ["log-0", "log-0", "log-1"]
    status, _, body = bench.manage(names.EXTENTS, logs=twice, partitions=["7", "7", "8"])
    assert status == 200
    assert [[each["partition"] for each in log["partitions"]] for log in body["logs"]] == [
        ["7", "8"],
        ["7", "8"],
    ]
    status, words, _ = bench.manage(names.EXTENTS, logs=logs)
    assert (status, "1200 partitions" in words, "at most 1000" in words) == (400, True, True)
    steps, answer = steps_of(
        bench.node.managing(Request(names.EXTENTS, names.LOG_TYPE, "log-0", {}, "me", 1))
    )
    assert answer.status == 200
    assert steps == 5
