"""Requests carried out by their types and operations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, SettingRefusedError, StorageError
from amqp_streams.node import requests
from amqp_streams.node.requests import PAGE_PARTITIONS_MAX, carry_out, listed
from amqp_streams.policy import AccessRule, Right
from amqp_streams.streams.access import Access
from amqp_streams.streams.management import CONFLICT, Answer, Request, RequestError
from amqp_streams.streams.steps import Steps, finish
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import ULong, Value
from tests.amqp_streams.node.bench import Bench, member


def request(operation: str = "READ", type_: str = "t") -> Request:
    return Request(operation, type_, "name", {}, None, None)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError(CONFLICT, "words"), 409),
        (PeerError(names.UNAUTHORIZED_ACCESS, "words"), 403),
        (StorageError("words"), 500),
        (SettingRefusedError("words"), 400),
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


def use(bench: Bench, user: str | None = None) -> dict[str, Any]:
    """What EXTENTS says of the use of the log `temps`."""
    request = Request(names.EXTENTS, names.LOG_TYPE, "temps", {}, "me", 1)
    log = cast("Any", read(bench.node.manage(request, user)))["logs"][0]
    return {key: log[key] for key in ("events-out", "consumers", "groups") if key in log}


def test_extents_say_how_a_log_is_read_from_its_first_group_to_its_end() -> None:
    bench = Bench()
    assert use(bench) == {"events-out": 0, "consumers": 0, "groups": 0}
    plain, first = bench.consume(), bench.consume(member(durable=True))
    bench.consume(member("h", partition=1, epoch=ULong(3)))
    bench.consume(member("", partition=0, epoch=ULong(3)))  # an epoch without a group
    bench.node.counters["temps"].events_out = 7
    assert use(bench) == {"events-out": 7, "consumers": 4, "groups": 2}
    for link in (plain, first):
        bench.detach(link)
    assert use(bench) == {"events-out": 7, "consumers": 2, "groups": 2}
    bench.flush()
    bench.restart()
    # One has a cursor on the disk, the other one an epoch.
    assert use(bench) == {"events-out": 0, "consumers": 0, "groups": 2}
    for group, left in (("g", 1), ("h", 0)):
        assert bench.manage("DELETE", group, names.GROUP_TYPE, log="temps")[0] == 204
        assert use(bench)["groups"] == left


def test_a_log_that_is_created_again_has_none_of_the_groups_before() -> None:
    bench = Bench()
    bench.consume(member(durable=True, partition=1, epoch=ULong(3)))
    assert use(bench)["groups"] == 1
    bench.complete()
    assert bench.manage("DELETE", "temps")[0] == 204
    bench.node.create("temps", LogSettings())
    assert use(bench) == {"events-out": 0, "consumers": 0, "groups": 0}


def test_who_reads_a_log_is_for_those_who_manage_it() -> None:
    bench = Bench(
        access=Access(
            [
                AccessRule(users=("ann",), logs=("temps",), allow=(Right.INFO, Right.RECEIVE)),
                AccessRule(users=("bob",), logs=("temps",), allow=(Right.MANAGE,)),
            ]
        )
    )
    assert use(bench, "ann") == {"events-out": 0}
    assert use(bench, "bob") == {"events-out": 0, "consumers": 0, "groups": 0}


def test_of_nodes_that_share_a_store_none_counts_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.consume()
    monkeypatch.setattr(bench.store, "others", object())
    assert use(bench) == {"events-out": 0, "consumers": 1}
