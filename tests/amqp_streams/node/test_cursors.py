"""Cursors that the node keeps for durable consumers. Spec: Event Streams 3.2; AMQP 2.6.3, 3.5.5, 3.5.6."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import Limits, LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.policy import Redirect
from amqp_streams.streams.attach import AttachRequest, Closed, Consuming, Denied, Granted, Pending
from amqp_streams.streams.consuming.reader import Run
from amqp_streams.streams.redirects import Redirects
from amqp_streams.testing.memory_states import MemoryStates
from amqp_streams.wire.types import Symbol, Value
from tests.amqp_streams.node.bench import EARLIEST, NOW, Bench, attach, member


@pytest.fixture
def bench() -> Bench:
    return Bench()


def durable(link: str = "s", **options: Any) -> AttachRequest:
    return attach(consumer=True, link=link, durable=True, **options)


def only(text: str) -> dict[str, Value]:
    return {names.FILTEX_SQL: text}


# -- beginning and resuming


def test_a_cursor_begins_on_the_disk_before_its_link_is_granted(bench: Bench) -> None:
    """3.2 (editors' list): the last offset is preserved by the durable terminus; one that a crash forgets
    would miss events.
    """
    bench.append(0)
    link = bench.attach(durable())
    assert isinstance(link, Pending)
    bench.append(0)
    (granted,) = bench.complete()
    assert isinstance(granted, Granted)
    assert granted.grant.keeps
    assert bench.read(granted.grant) == [(0, 1)], (
        "new events are those after the attach, not after its answer"
    )


def test_a_cursor_that_cannot_be_kept_is_not_granted(bench: Bench) -> None:
    bench.attach(durable())
    (denied,) = bench.complete(StorageError("the disk is gone"))
    assert isinstance(denied, Denied)
    assert denied.error.condition == names.INTERNAL_ERROR
    bench.attach(durable("t"))
    bench.attach(durable("t"))
    assert len(bench.node.take_effects()) == 1
    assert len(bench.complete()) == 1, "who was stolen meanwhile is not granted"


def test_a_returning_consumer_continues_after_its_settled_events(bench: Bench) -> None:
    """3.2: "the last offset is preserved by the durable terminus across disconnects"."""
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0, 0, 0, 1)
    assert len(bench.read(consumer)) == 4
    bench.settle(consumer, (0, 0), (0, 1), (1, 0))
    bench.detach(consumer)
    again = bench.attach(durable(filters=EARLIEST))
    assert isinstance(again, Consuming), "nothing is to be written first"
    assert bench.read(again) == [(0, 2)]


def test_the_lowest_unsettled_is_where_the_next_begins(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0, 0, 0, 0)
    bench.read(consumer)
    bench.settle(consumer, (0, 0), (0, 2), (0, 3))
    bench.detach(consumer, closed=True)
    assert bench.read(bench.consume(durable())) == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize(
    "filters", [{}, {names.FILTER_DELIVERY_ANNOTATIONS: {names.OFFSET: Symbol("@latest")}}]
)
def test_new_events_means_nothing_to_whoever_has_a_cursor(bench: Bench, filters: dict[str, Value]) -> None:
    """The consumer attached for the events that it missed while it was away."""
    bench.detach(bench.consume(durable(filters=filters)))
    bench.append(0)
    assert bench.read(bench.consume(durable(filters=filters))) == [(0, 0)]


def test_other_bounds_stay_conditions(bench: Bench) -> None:
    bench.detach(bench.consume(durable(filters=EARLIEST)))
    bench.append(0, 0, 0)
    after = {names.FILTER_DELIVERY_ANNOTATIONS: {names.OFFSET: Symbol(f"{0:016d}")}}
    assert bench.read(bench.consume(durable(filters=after))) == [(0, 1), (0, 2)]
    bench.append(0, now_ms=NOW + 5000)
    late: dict[str, Value] = {names.FILTER_DELIVERY_ANNOTATIONS: {names.TIMESTAMP: NOW + 1}}
    assert bench.read(bench.consume(durable(filters=late))) == [(0, 3)]


def test_a_bound_link_of_the_same_name_keeps_to_its_partition(bench: Bench) -> None:
    bench.append(0, 1)
    bound = {names.PARTITION: Symbol("1")}
    consumer = bench.consume(durable(filters=EARLIEST, properties=bound))
    bench.settle(consumer, *bench.read(consumer))
    bench.detach(consumer)
    assert bench.read(bench.consume(durable(filters=EARLIEST))) == [(0, 0)], (
        "partition 0 begins now, partition 1 is done"
    )


def test_links_that_are_not_durable_keep_nothing(bench: Bench) -> None:
    consumer = bench.consume(link="s", filters=EARLIEST)
    bench.append(0)
    assert not consumer.keeps
    bench.settle(consumer, *bench.read(consumer))
    bench.flush()
    assert bench.store.states.items("") == []


# -- what moves a cursor, and when


def test_settled_when_sent_moves_it_as_far_as_was_sent(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST, presettled=True))
    bench.log.partitions[0].append([b"\x00\x53\x75\xa0\x01x"] * 3, bytes(3), NOW)
    bench.store.commit()
    run = bench.node.next_run(consumer, 10)
    assert isinstance(run, Run)
    bench.node.sent(consumer, run, 2)
    bench.detach(consumer)
    assert bench.read(bench.consume(durable())) == [(0, 2)]


def test_events_that_filters_skip_are_never_examined_again(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST | only("colour = 'red'")))
    bench.append(0, 0)
    assert bench.read(consumer) == []
    bench.flush()
    bench.restart()
    assert bench.read(bench.consume(durable())) == []


def test_a_kill_repeats_what_was_settled_since_the_last_flush_and_no_more(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0, 0, 0, 0)
    bench.read(consumer)
    bench.settle(consumer, (0, 0), (0, 1))
    bench.flush()
    bench.settle(consumer, (0, 2))
    bench.restart()
    assert bench.read(bench.consume(durable())) == [(0, 2), (0, 3)]


def test_the_end_of_a_link_is_written_at_once(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0)
    bench.settle(consumer, *bench.read(consumer))
    bench.detach(consumer)
    bench.complete()
    bench.restart()
    assert bench.read(bench.consume(durable())) == []


def test_nothing_is_written_when_nothing_moved(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0)
    bench.settle(consumer, *bench.read(consumer))
    bench.flush()
    written = bench.store.states.written
    bench.read(consumer)
    bench.flush()
    assert bench.store.states.written == written


def test_many_cursors_are_written_in_bites(bench: Bench) -> None:
    """Thousands of links may have moved. Writing all cursors at once would delay all clients."""
    consumers = [bench.consume(durable(str(index), filters=EARLIEST)) for index in range(5)]
    bench.append(0)
    for consumer in consumers:
        bench.settle(consumer, *bench.read(consumer))
    written = bench.store.states.written
    told: list[StorageError | None] = []
    assert bench.node.flush_cursors(NOW, 2, lambda failure, _now_ms: told.append(failure))
    assert (bench.node.flushing_cursors, bench.node.cursors_waiting) == (True, False)
    bench.append(1)
    bench.read(consumers[0])
    assert bench.node.cursors_waiting, "for the next time: this one has an end, however much moves meanwhile"
    assert bench.node.flush_cursors(NOW, 2)
    bench.complete()
    assert told == []
    assert not bench.node.flush_cursors(NOW, 2)
    assert bench.store.states.written == written + 3
    bench.complete()
    assert told == [None]
    bench.restart()
    assert [bench.read(bench.consume(durable(str(index)))) for index in range(5)] == [[(1, 0)]] * 5


def test_a_cursor_that_retention_overtook_is_reported(bench: Bench) -> None:
    """4.4: a reader learns where it continues, and how many events it missed."""
    bench.log = bench.node.create("short", LogSettings(retention_ms=1000, segment_ms=1000))
    bench.detach(bench.consume(durable(address="short")))
    bench.append(0, 0)
    bench.store.apply_retention(NOW + 5000)
    bench.append(0, now_ms=NOW + 5000)
    run = bench.node.next_run(bench.consume(durable(address="short")), 10)
    assert isinstance(run, Run)
    assert (run.first, run.skipped) == (2, 2)


def test_an_event_that_is_removed_before_its_retry_delays_nothing(bench: Bench) -> None:
    bench.log = bench.node.create("short", LogSettings(retention_ms=1000, segment_ms=1000))
    consumer = bench.consume(durable(address="short", filters=EARLIEST))
    bench.append(0)
    assert bench.read(consumer) == [(0, 0)]
    bench.store.apply_retention(NOW + 5000)
    assert bench.node.record(consumer, 0, 0) is None
    bench.append(0, now_ms=NOW + 5000)
    bench.settle(consumer, *bench.read(consumer))
    bench.detach(consumer)
    assert bench.read(bench.consume(durable(address="short"))) == []


# -- whose it is


def test_a_cursor_is_its_users(bench: Bench) -> None:
    bench.detach(bench.consume(durable(user="ann")))
    for stranger in (None, "bob"):
        assert bench.refusal(durable(user=stranger)).condition == names.UNAUTHORIZED_ACCESS
        unsubscribing = attach(None, consumer=True, no_source=True, link="s", user=stranger)
        assert bench.refusal(unsubscribing).condition == names.NOT_FOUND, "as if there were none"
    assert bench.consume(durable(user="ann"))


def test_another_user_takes_no_partition_of_a_group_that_keeps_its_cursor(bench: Bench) -> None:
    """This holds even without a cursor of the other user: with a high epoch it could lock the user of the
    group out.
    """
    bench.detach(bench.consume(member(partition=0, durable=True, user="ann")))
    for claim in (member(user="bob"), member(partition=0, user=None)):
        assert bench.refusal(claim).condition == names.UNAUTHORIZED_ACCESS
    assert bench.consume(member(partition=0, user="ann"))
    assert bench.consume(member(group="others", partition=0, user="bob"))


def test_a_link_attached_again_takes_the_cursor_with_it(bench: Bench) -> None:
    """AMQP 2.6.1: settlements of the old endpoint no longer count, so its unsettled events are sent to the
    new one.
    """
    old = bench.consume(durable(filters=EARLIEST))
    bench.append(0, 0)
    bench.read(old)
    bench.settle(old, (0, 0))
    new = bench.attach(durable())
    assert isinstance(new, Consuming)
    assert [each.grant for each in bench.node.take_effects() if isinstance(each, Closed)] == [old]
    bench.settle(old, (0, 1))
    assert bench.read(new) == [(0, 1)]
    bench.flush()
    bench.restart()
    assert bench.read(bench.consume(durable())) == [(0, 1)]


@pytest.mark.parametrize("options", [{"container": ""}, {"link": ""}, {"container": "c" * 2000}])
def test_a_cursor_needs_a_name_to_be_kept_under(bench: Bench, options: dict[str, str]) -> None:
    assert bench.refusal(attach(consumer=True, durable=True, **options)).condition == names.INVALID_FIELD


def test_cursors_are_limited() -> None:
    bench = Bench(limits=Limits(cursors=1))
    bench.consume(durable("a"))
    assert bench.refusal(durable("b")).condition == names.RESOURCE_LIMIT_EXCEEDED
    assert bench.consume(durable("a")), "the one that there is may be used"


def test_no_room_among_the_states_leaves_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_changes: object) -> int:
        message = "too many keys"
        raise ValueError(message)

    with monkeypatch.context() as patched:
        patched.setattr(bench.store.states, "write", full)
        with pytest.raises(PeerError) as refused:
            bench.attach(durable())
    assert refused.value.condition == names.RESOURCE_LIMIT_EXCEEDED
    assert bench.manage("QUERY", type_=names.CURSOR_TYPE)[2] == {names.CURSORS: []}
    assert bench.consume(durable()).keeps


# -- logs and partitions that come and go


def test_a_deleted_log_takes_its_cursors_with_it(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0)
    bench.read(consumer)
    bench.manage("DELETE", "temps")
    bench.settle(consumer, (0, 0))
    bench.flush()
    assert bench.store.states.items("") == []
    bench.log = bench.node.create("temps", LogSettings(partitions=2))
    bench.append(0)
    assert bench.read(bench.consume(durable(filters=EARLIEST))) == [(0, 0)], "a namesake begins anew"


def test_the_remains_of_a_log_whose_deletion_crashed_are_removed_at_the_next_start(bench: Bench) -> None:
    bench.consume(durable())
    bench.consume(member(partition=0, epoch=3))
    kept = dict(bench.store.states.durable)
    bench.manage("DELETE", "temps")
    # As after a crash between the two.
    bench.store.states = MemoryStates(kept | {f"ending/{bench.log.incarnation}": b""})  # type: ignore[misc]
    bench.restart()
    assert bench.store.states.items("") == []


def test_a_log_that_is_missing_finds_its_cursors_again_when_it_is_back(bench: Bench) -> None:
    """An operator may restore the log from a backup, and a log whose deletion failed still exists."""
    bench.detach(bench.consume(durable()))
    bench.append(0)
    logs = bench.store._logs
    away = dict(logs)
    logs.clear()
    bench.restart()
    logs.update(away)
    bench.store.states.write({f"ending/{bench.log.incarnation}": b""})
    bench.complete()
    bench.restart()
    assert bench.read(bench.consume(durable())) == [(0, 0)]
    assert bench.store.states.items("ending/") == []


def test_a_cursor_waits_for_partitions_that_come_back(bench: Bench) -> None:
    consumer = bench.consume(durable(filters=EARLIEST))
    bench.append(0, 1)
    bench.settle(consumer, *bench.read(consumer))
    bench.node.redirects = Redirects(
        [Redirect(log="temps", partitions=(1,), host="other.example", port=5672)]
    )
    bench.node.reassociate()
    bench.append(1)
    bench.detach(consumer)
    other = bench.consume(durable())
    assert bench.read(other) == []
    bench.node.redirects = Redirects()
    assert bench.node.reassociate() == {other}
    assert bench.read(other) == [(1, 1)]


def test_partitions_that_come_while_a_cursor_is_written_are_read_too(bench: Bench) -> None:
    bench.append(1)
    bench.node.redirects = Redirects(
        [Redirect(log="temps", partitions=(1,), host="other.example", port=5672)]
    )
    bench.attach(durable(filters=EARLIEST))
    bench.node.redirects = Redirects()
    assert bench.node.reassociate() == set()
    (granted,) = bench.complete()
    assert isinstance(granted, Granted)
    assert bench.read(granted.grant) == [(1, 0)]


@given(st.data())
def test_nothing_is_missed_and_only_unsettled_events_come_again_after_any_settlements_and_losses(
    data: st.DataObject,
) -> None:
    """Deliveries, settlements in any order, reconnections, flushes and kills: each event is delivered, in
    order, until its settlement was flushed.
    """
    bench = Bench(partitions=1)
    consumer = bench.consume(durable(filters=EARLIEST))
    appended, unsettled, settled, safe = 0, list[int](), set[int](), set[int]()
    position = 0
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        match data.draw(
            st.sampled_from(["append", "read", "settle", "flush", "reconnect", "kill"]), label="step"
        ):
            case "append":
                bench.append(0)
                appended += 1
            case "read":
                got = [
                    number for _, number in bench.read(consumer, data.draw(st.integers(1, 5), label="credit"))
                ]
                assert got == list(range(position, position + len(got))), "no gap, no event twice on one link"
                position += len(got)
                unsettled += got
            case "settle" if unsettled:
                number = unsettled.pop(data.draw(st.integers(0, len(unsettled) - 1), label="which"))
                settled.add(number)
                bench.settle(consumer, (0, number))
            case "flush":
                bench.flush()
                safe = set(settled)
            case "reconnect" | "kill" as how:
                if how == "kill":
                    bench.restart()
                    settled = set(safe)
                else:
                    bench.detach(consumer)
                    bench.complete()
                    safe = set(settled)
                consumer = bench.consume(durable())
                unsettled = []
                position = next(number for number in range(appended + 1) if number not in settled)
                settled, safe = set(range(position)), set(range(position))
            case _:
                pass
