"""The node decides on links, wakes waiting readers, and performs management requests. No sockets, no
engine.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, DiskFullError, PeerError, StorageError
from amqp_streams.node import LogCounters, Node, skipped_text, storage_refusal
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Grant,
    Informing,
    Managing,
    Producing,
    Relaying,
    Replying,
)
from amqp_streams.streams.consuming.reader import Run
from amqp_streams.streams.management import Request, answer_message, parse_request
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import Described, Symbol, ULong, Value
from tests.amqp_streams.decoded import mapping
from tests.amqp_streams.node.bench import EARLIEST, NOW, Bench, attach


def refusal(node: Node, request: AttachRequest) -> PeerError:
    with pytest.raises(PeerError) as refused:
        node.attach(request, 0)
    return refused.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- attach


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (attach(), Producing),
        (attach(None), Relaying),
        (attach(consumer=True), Consuming),
        (attach("temps/$info", consumer=True), Informing),
        (attach("$management"), Managing),
        (attach("$management", consumer=True), Replying),
        (attach(None, consumer=True, dynamic=True), Replying),
    ],
)
def test_each_address_has_its_kind_of_link(bench: Bench, request_: AttachRequest, kind: type[Grant]) -> None:
    assert isinstance(bench.attach(request_), kind)


@pytest.mark.parametrize(
    ("request_", "condition"),
    [
        (attach("nowhere"), names.NOT_FOUND),
        (attach("nowhere", consumer=True), names.NOT_FOUND),
        (attach("nowhere/$info", consumer=True), names.NOT_FOUND),
        (attach("temps/$info"), names.NOT_FOUND),
        (attach("temps/$info/$info", consumer=True), names.NOT_FOUND),
        (attach(None, consumer=True), names.INVALID_FIELD),
        (attach(None, dynamic=True), names.NOT_IMPLEMENTED),
        (attach(properties={names.PARTITION: Symbol("7")}), names.NOT_FOUND),
        (attach(consumer=True, properties={names.PARTITION: Symbol("7")}), names.NOT_FOUND),
        (attach(properties={names.CONSUMER_GROUP: "g"}), names.INVALID_FIELD),
        (attach(properties={names.EPOCH: ULong(1)}), names.INVALID_FIELD),
        (attach(consumer=True, filters={names.FILTER_DELIVERY_ANNOTATIONS: "no map"}), names.INVALID_FIELD),
    ],
)
def test_each_refusal_has_its_condition_and_leaves_nothing_behind(
    bench: Bench, request_: AttachRequest, condition: str
) -> None:
    assert refusal(bench.node, request_).condition == condition
    assert list(bench.node.consumers()) == []
    assert bench.node.links_of("temps") == ()


def test_an_unknown_address_says_how_to_create_the_log(bench: Bench) -> None:
    assert (
        "amqp-streams log create nowhere --partitions" in refusal(bench.node, attach("nowhere")).description
    )
    assert len(refusal(bench.node, attach("x" * 5000)).description) <= 1024


def test_unknown_addresses_become_logs_where_that_is_wanted() -> None:
    bench = Bench(auto_create_partitions=3)
    grant = bench.attach(attach("made"))
    assert isinstance(grant, Producing)
    assert len(grant.log.partitions) == 3
    assert bench.node.counters["made"] == LogCounters()
    assert refusal(bench.node, attach("no/name")).condition == names.NOT_FOUND


def test_unauthenticated_clients_create_only_as_many_logs_as_the_node_serves_partitions() -> None:
    """Each partition needs a folder, files and memory, so neither attaches to invented names nor requests may
    accumulate partitions.
    """
    node = Node(
        MemoryStore(),
        sync="always",
        new_id=iter("abcdefgh").__next__,
        auto_create_partitions=3,
        partitions_max=7,
    )
    node.attach(attach("one"), 0)
    node.attach(attach("two"), 0)
    assert refusal(node, attach("three")).condition == names.RESOURCE_LIMIT_EXCEEDED
    request = Request("CREATE", names.LOG_TYPE, "three", {"partitions": 2}, None, None)
    assert node.manage(request).status == 403
    assert node.manage(replace(request, body={"partitions": 1})).status == 201
    node.attach(attach("one"), 0)


def test_a_log_that_cannot_be_made_is_a_failure_of_ours() -> None:
    bench = Bench(auto_create_partitions=1)

    def broken(*_args: object, **_options: object) -> None:
        raise StorageError

    bench.store.create = broken  # type: ignore[assignment]
    with pytest.raises(StorageError):
        bench.attach(attach("made"))


def test_a_bound_consumer_has_one_partition_and_nothing_to_announce(bench: Bench) -> None:
    bound = bench.consume(properties={names.PARTITION: Symbol("1")})
    agnostic = bench.consume()
    assert (bound.bound, bound.announce, bound.partitions) == (True, False, bench.log.partitions[1:])
    assert (agnostic.bound, agnostic.announce, agnostic.partitions) == (False, True, bench.log.partitions)


def test_links_are_known_by_their_log_until_they_detach(bench: Bench) -> None:
    grants = [
        bench.attach(each) for each in (attach(), attach(consumer=True), attach("temps/$info", consumer=True))
    ]
    assert set(bench.node.links_of("temps")) == set(grants)
    assert list(bench.node.consumers()) == [grants[1]]
    for grant in grants:
        bench.detach(grant)
        bench.detach(grant)
    assert bench.node.links_of("temps") == ()
    bench.detach(Relaying())
    bench.detach(Managing())


# -- reading


def test_a_consumer_without_a_filter_gets_what_is_accepted_after_its_attach(bench: Bench) -> None:
    bench.append(0, 1)
    consumer = bench.consume()
    assert bench.read(consumer) == []
    bench.append(1)
    assert bench.read(consumer) == [(1, 1)]


def test_a_consumer_is_woken_by_the_partitions_that_it_reads_once_it_waits(bench: Bench) -> None:
    bound = bench.consume(properties={names.PARTITION: Symbol("1")}, filters=EARLIEST)
    assert bench.append(1) == set(), "it has not looked yet, so it does not wait"
    assert bench.read(bound) == [(1, 0)]
    assert bench.append(0) == set()
    assert bench.append(1) == {bound}
    assert bench.append(1) == set(), "woken once"
    assert bench.read(bound) == [(1, 1), (1, 2)]


def test_no_event_is_forgotten_when_a_partition_fills_up_again_while_another_is_read(bench: Bench) -> None:
    """A consumer with little credit finds one partition empty and continues with the other; then the first
    one gets more events.
    """
    consumer = bench.consume(filters=EARLIEST)
    bench.append(0, *[1] * 20)
    taken = [run for _ in range(3) if isinstance(run := bench.node.next_run(consumer, 2), Run)]
    assert [run.partition.index for run in taken] == [0, 1, 1]
    bench.append(0)
    assert (0, 1) in bench.read(consumer)


def test_a_thousand_consumers_without_credit_cost_an_append_nothing(bench: Bench) -> None:
    """Only consumers that requested more events (which takes credit) and found none are woken. Other
    consumers are not examined.
    """
    idle = [bench.attach(attach(consumer=True)) for _ in range(1000)]
    eager = bench.attach(attach(consumer=True))
    assert isinstance(eager, Consuming)
    assert bench.node.next_run(eager, 10) is None
    assert bench.append(0) == {eager}
    assert bench.append(0) == set(), "who was woken and did not ask again is not woken again"
    assert len(idle) == 1000


def test_a_detached_consumer_is_not_woken(bench: Bench) -> None:
    consumer = bench.consume()
    assert bench.read(consumer) == []
    bench.detach(consumer)
    assert bench.append(0, 1) == set()


def test_a_failed_commit_wakes_no_reader(bench: Bench) -> None:
    consumer = bench.consume()
    assert bench.read(consumer) == []
    bench.store.fail(bench.log.partitions[0], StorageError("broken"), stop=False)
    assert bench.append(0) == set()
    assert bench.append(0) == {consumer}


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (CorruptionError("bad bytes", first=1, after=2), names.INTERNAL_ERROR),
        (StorageError("gone"), names.INTERNAL_ERROR),
        (DiskFullError("full"), names.RESOURCE_LIMIT_EXCEEDED),
    ],
)
def test_disk_failures_are_reported_with_a_condition(
    bench: Bench, error: StorageError, condition: str
) -> None:
    consumer = bench.consume(filters=EARLIEST)
    bench.append(0)

    def broken(_at: int, _bytes: int, _request: object = None) -> None:
        raise error

    bench.log.partitions[0].read = broken  # type: ignore[method-assign, assignment]
    for read in (lambda: bench.node.next_run(consumer, 1), lambda: bench.node.record(consumer, 0, 0)):
        with pytest.raises(PeerError) as refused:
            read()
        assert (refused.value.condition, refused.value.description) == (condition, str(error))
    assert storage_refusal(error).condition == condition


def test_a_record_is_read_again_by_its_number(bench: Bench) -> None:
    bench.append(0, 0, 1)
    consumer = bench.consume(filters=EARLIEST)
    run = bench.node.record(consumer, 0, 1)
    assert isinstance(run, Run)
    assert (run.partition.index, run.first, run.count) == (0, 1, 1)


def test_a_record_that_retention_removed_cannot_be_read_again(bench: Bench) -> None:
    log = bench.node.create("short", LogSettings(retention_ms=1000, segment_ms=1000))
    consumer = bench.attach(attach("short", consumer=True))
    assert isinstance(consumer, Consuming)
    partition = log.partitions[0]
    partition.append([b"x"], b"\0", NOW)
    bench.store.commit()
    bench.store.apply_retention(NOW + 5000)
    assert bench.node.record(consumer, 0, 0) is None, "nothing is left"
    partition.append([b"x"], b"\0", NOW + 5000)
    bench.store.commit()
    assert bench.node.record(consumer, 0, 0) is None, "what follows is not what was asked for"


def test_skipped_events_are_reported_in_words(bench: Bench) -> None:
    bench.append(1)
    chunk = bench.log.partitions[1].read(0, 100)
    assert chunk is not None
    assert skipped_text(Run(bench.log.partitions[1], chunk, 0, 1, 3)) == (
        "3 events before offset 0 of partition 1 were removed by retention"
    )


# -- information and requests


def test_information_is_of_this_moment(bench: Bench) -> None:
    grant = bench.attach(attach("temps/$info", consumer=True))
    assert isinstance(grant, Informing)
    before = finish(bench.node.info_message(grant, 0))
    bench.append(0)
    assert finish(bench.node.info_message(grant, 0)) != before


def test_information_on_a_link_that_is_attached_follows_changed_settings(bench: Bench) -> None:
    grant = bench.attach(attach("temps/$info", consumer=True))
    assert isinstance(grant, Informing)
    bench.manage("UPDATE", "temps", retention_ms=5000)
    answer, _ = decode(finish(bench.node.info_message(grant, 0)))
    assert isinstance(answer, Described)
    assert isinstance(answer.value, dict)
    assert answer.value["retention-ms"] == 5000


def test_answers_are_found_by_any_address_of_their_link(bench: Bench) -> None:
    own = bench.attach(attach("$management", consumer=True, peer_address="my-answers"))
    made_up = bench.attach(attach(None, consumer=True, dynamic=True))
    nameless = bench.attach(attach("$management", consumer=True))
    assert isinstance(own, Replying)
    assert isinstance(made_up, Replying)
    assert isinstance(nameless, Replying)
    assert own.addresses == {"my-answers"}
    assert len(made_up.addresses) == len(nameless.addresses) == 1
    assert all(address.startswith("$reply.") for address in made_up.addresses | nameless.addresses)
    bench.detach(own)


def test_logs_are_created_described_listed_changed_and_deleted_by_request(bench: Bench) -> None:
    status, _, created = bench.manage("CREATE", "new", partitions=3, retention_ms=5000)
    assert status == 201
    body = mapping(created)
    assert (body["name"], body["retention-ms"], len(body["partitions"])) == ("new", 5000, 3)
    assert bench.manage("READ", "new") == (200, "OK", body)
    status, _, listed = bench.manage("QUERY")
    assert status == 200
    assert [log["name"] for log in mapping(listed)["logs"]] == ["new", "temps"]
    status, _, changed = bench.manage("UPDATE", "new", retention_ms=9000)
    assert (status, changed) == (200, body | {"retention-ms": 9000})
    assert bench.manage("DELETE", "new") == (204, "deleted", {})
    assert bench.manage("READ", "new")[0] == 404
    assert set(bench.node.counters) == {"temps"}


@pytest.mark.parametrize(
    ("operation", "name", "type_", "body", "status"),
    [
        ("CREATE", "temps", "event-log", {}, 409),
        ("CREATE", "a/b", "event-log", {}, 400),
        ("CREATE", "new", "event-log", {"partitions": 0}, 400),
        ("CREATE", "new", "event-log", {"colour": "blue"}, 400),
        ("CREATE", "new", "queue", {}, 501),
        ("READ", "nowhere", "event-log", {}, 404),
        ("READ", "", "event-log", {}, 400),
        ("UPDATE", "nowhere", "event-log", {}, 404),
        ("UPDATE", "temps", "event-log", {"partitions": 3}, 400),
        ("UPDATE", "temps", "event-log", {"retention_ms": 1}, 400),
        ("UPDATE", "temps", "event-log", {"compression": "gzip"}, 400),
        ("UPDATE", "temps", "event-log", {"compression": "lz4"}, 200),
        ("DELETE", "nowhere", "event-log", {}, 404),
        ("DANCE", "temps", "event-log", {}, 501),
        ("", "temps", "", {}, 501),
        ("READ", "temps", "", {}, 200),
    ],
)
def test_each_request_has_its_status(  # noqa: PLR0917  a table has columns
    bench: Bench, operation: str, name: str, type_: str, body: dict[str, Any], status: int
) -> None:
    assert bench.manage(operation, name, type_, **body)[0] == status


_VALUES: st.SearchStrategy[Value] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
_SETTINGS = st.sampled_from(
    ["partitions", "retention-ms", "retention-bytes", "segment-bytes", "segment-ms", "compression", "colour"]
)


@given(
    st.sampled_from(["CREATE", "READ", "QUERY", "UPDATE", "DELETE", "DANCE", "READ", ""]),
    st.one_of(st.sampled_from(["temps", "new"]), _VALUES),
    st.dictionaries(_SETTINGS, _VALUES, max_size=3),
    _VALUES,
)
def test_any_request_at_all_has_an_answer(
    operation: str, name: Value, body: dict[Value, Value], correlation: Value
) -> None:
    """Values in a request are read with their type or not at all, and the answer can always be encoded."""
    properties: list[Value] = [None, None, None, None, "me", correlation]
    application: dict[Value, Value] = {"operation": operation, "type": "event-log", "name": name}
    sections: dict[int, Value] = {0x73: properties, 0x74: application, 0x77: body}
    request = parse_request(
        b"".join(encode(Described(ULong(code), value)) for code, value in sections.items())
    )
    answer = Bench().node.manage(request)
    assert answer.status in {200, 201, 204, 400, 404, 409, 501}
    assert answer_message(request, answer)


def test_a_disk_that_fails_a_request_is_a_server_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(bench.store, "delete", broken)
    assert bench.manage("DELETE", "temps") == (500, "the disk is gone", None)


def test_events_go_in_through_the_intake(bench: Bench) -> None:
    grant = bench.attach(attach())
    assert isinstance(grant, Producing)
    receipt = bench.node.receive(grant, [b"\x00\x53\x75\xa0\x01a", b"garbage"], NOW)
    assert [index for index, _ in receipt.refused] == [1]
    bench.store.commit()
    assert sum(partition.end for partition in bench.log.partitions) == 1
