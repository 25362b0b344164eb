"""What a home decides from reports: who owns what, when, and how far cursors move."""

from dataclasses import replace

from amqp_streams import names
from amqp_streams.homes.messages import Leaves, Reported
from amqp_streams.homes.serving import Serving
from tests.amqp_streams.homes.stage import LIMITS, LOG, SETTINGS, TIMES, Stage, own_cursor, wanted


def test_a_link_is_granted_when_its_owner_record_and_the_first_position_are_durable() -> None:
    stage = Stage()
    stage.report("a", Reported(1, wanted("m", 0)))
    assert not stage.owns("a")
    changes = stage.commit()
    assert {key.partition("/")[0] for key in changes} == {"owner", "cursor"}
    (owns,) = stage.owns("a")
    assert (owns.number, owns.partition, owns.epoch, owns.positions) == (1, 0, 0, ((0, 0),))


def test_an_epoch_is_durable_before_it_is_reported() -> None:
    stage = Stage()
    stage.report("a", Reported(1, wanted("m", 0, 7)))
    assert list(stage.commit()) == ["epoch/i/0/g"]
    assert not stage.owns("a")
    stage.commit()
    assert stage.owns("a")[0].epoch == 7


def test_a_greater_epoch_waits_until_the_evicted_link_has_stopped() -> None:
    stage = Stage()
    old = stage.grant("a", 1, wanted("m", 0, 1))
    stage.report("b", Reported(1, wanted("n", 0, 2)))
    stage.commit()
    stage.commit()
    assert stage.ends("a")[0].error.condition == names.LINK_STOLEN
    assert not stage.owns("b")
    # The node repeats what it believed before it got the answer.
    stage.report("a", old)
    assert not stage.owns("b")
    stage.report("a")
    assert stage.owns("b")[0].epoch == 2


def test_a_greater_epoch_waits_no_longer_than_the_grant_of_a_node_that_is_silent() -> None:
    stage = Stage()
    stage.grant("a", 1, wanted("m", 0, 1))
    promised = stage.now_ms + TIMES.lease_ms
    stage.report("b", Reported(1, wanted("n", 0, 2)))
    stage.commit()
    stage.commit()
    stage.now_ms = promised
    stage.report("b", Reported(1, wanted("n", 0, 2)))
    stage.serving.tick(stage.now_ms)
    assert not stage.owns("b")
    stage.now_ms = promised + TIMES.outlasting_ms - TIMES.lease_ms + 1
    stage.serving.tick(stage.now_ms)
    assert stage.owns("b")


def test_the_links_of_a_silent_node_are_released_after_a_lease() -> None:
    stage = Stage()
    first = stage.grant("a", 1, wanted("m"))
    stage.grant("a", 2, replace(wanted("m"), link="second"), first)
    stage.report("b", Reported(1, wanted("n")))
    stage.now_ms += TIMES.outlasting_ms + 1
    stage.report("b", Reported(1, wanted("n")))
    stage.serving.tick(stage.now_ms)
    stage.commit()
    assert "a" not in stage.serving.sessions
    assert [each.number for each in stage.owns("b")] == [1]


def test_a_silent_node_with_links_that_own_and_links_that_wait_is_released_as_a_whole() -> None:
    stage = Stage()
    first = stage.grant("a", 1, wanted("m"))
    second = stage.grant("a", 2, replace(wanted("m"), link="second"), first)
    stage.report("a", first, second, Reported(3, replace(wanted("m"), link="third")))
    stage.now_ms += TIMES.outlasting_ms + 1
    stage.serving.tick(stage.now_ms)
    assert not stage.serving.sessions


def test_the_last_positions_of_a_link_are_where_the_next_one_begins() -> None:
    stage = Stage()
    owned = stage.grant("a", 1, wanted("m", 0))
    stage.report("a", owned, Reported(2, replace(wanted("n", 0), container="n")))
    assert stage.ends("a")[0].error.condition == names.RESOURCE_LOCKED
    stage.report("a", replace(owned, positions=((0, 9),), gone=True))
    again = stage.grant("b", 1, wanted("n", 0))
    assert again.positions == ((0, 9),)


def test_settlements_of_a_link_that_does_not_own_change_nothing() -> None:
    stage = Stage()
    old = stage.grant("a", 1, wanted("m", 0, 1))
    stage.report("b", Reported(1, wanted("n", 0, 2), positions=((0, 5),)))
    stage.commit()
    stage.commit()
    stage.report("a", replace(old, positions=((0, 6),)))
    assert not stage.serving.moved
    stage.report("a")
    assert stage.owns("b")[0].positions == ((0, 0),)


def test_a_position_is_reported_as_durable_after_its_transaction_and_not_before() -> None:
    stage = Stage()
    owned = stage.grant("a", 1, wanted("m", 0))
    stage.report("a", replace(owned, positions=((0, 4),), stored=((0, 0),), urgent=True))
    assert stage.serving.urgent
    stage.serving.flush()
    assert not stage.stored("a")
    stage.commit()
    assert stage.stored("a")[0].positions == ((0, 4),)
    stage.report("a", replace(owned, positions=((0, 4),), stored=((0, 4),)))
    assert not stage.stored("a")


def test_a_new_link_is_not_told_that_positions_in_memory_are_durable() -> None:
    stage = Stage()
    owned = stage.grant("a", 1, wanted("m", 0))
    stage.report("a", replace(owned, positions=((0, 9),), gone=True))
    other = stage.grant("b", 1, wanted("n", 0))
    assert other.positions == ((0, 9),)
    stage.report("b", other)
    assert all(at < 9 for stored in stage.stored("b") for _, at in stored.positions)


def test_an_older_report_changes_nothing() -> None:
    stage = Stage()
    old = stage.message("a", Reported(1, wanted("m", 0)))
    stage.grant("a", 2, wanted("m", 0))
    stage.serving.report(old, stage.now_ms, stage.now_ms)
    assert list(stage.serving.sessions["a"].claimants) == [2]


def test_the_same_link_at_another_node_steals() -> None:
    stage = Stage()
    stage.grant("a", 1, own_cursor("c"))
    stage.report("b", Reported(1, own_cursor("c")))
    stage.commit()
    assert stage.ends("a")[0].error.condition == names.LINK_STOLEN
    assert not stage.owns("b")
    stage.report("a")
    assert stage.owns("b")[0].positions == ((0, 3), (1, 4))


def test_a_new_home_takes_over_what_nodes_hold_unless_another_link_was_granted_since() -> None:
    stage = Stage()
    lost = stage.grant("a", 1, wanted("m", 0))
    stage.now_ms += TIMES.outlasting_ms + 1
    stage.serving.tick(stage.now_ms)
    held = stage.grant("b", 1, wanted("n", 0))
    after = Stage(dict(stage.states.values), term=2)
    after.serving.resume([(after.message("a", lost), 1), (after.message("b", held), 1)], after.now_ms)
    # Both reports have number 0: only a report with a number counts.
    assert not after.serving.sessions["a"].claimants
    after._numbers = 1
    after.serving.resume([(after.message("a", lost), 1), (after.message("b", held), 1)], after.now_ms)
    assert after.ends("a")[0].error.condition == names.LINK_DETACH_FORCED
    (owns,) = after.owns("b")
    assert owns.serial > (2, 0)


def test_a_link_that_was_taken_over_can_still_be_moved() -> None:
    stage = Stage()
    first = stage.grant("a", 1, wanted("m"))
    second = stage.grant("a", 2, replace(wanted("m"), link="second"), first)
    after = Stage(dict(stage.states.values), term=2)
    after._numbers = 1
    after.serving.resume([(after.message("a", first, second), after.now_ms)], after.now_ms)
    after.report("b", Reported(1, wanted("n")))
    for _ in range(8):
        after.now_ms += 400
        after.report("a", first, second)
        after.report("b", Reported(1, wanted("n")))
        after.serving.tick(after.now_ms)
    verdicts = after.answer("a").verdicts
    assert [each.number for each in verdicts if isinstance(each, Leaves)] == [2]


def test_a_home_that_leaves_has_settled_when_no_grant_can_be_in_force() -> None:
    stage = Stage()
    owned = stage.grant("a", 1, wanted("m", 0))
    stage.serving.withdraw(stage.now_ms)
    answer = stage.answer("a")
    assert answer.withdrawn
    assert answer.remaining_ms == 0
    assert not stage.serving.settled(stage.now_ms)
    stage.report("a", replace(owned, positions=((0, 2),)), yielded=True)
    assert stage.serving.settled(stage.now_ms)
    assert stage.serving.moved


def test_a_cursor_of_another_user_is_refused() -> None:
    stage = Stage()
    stage.grant("a", 1, wanted("m", 0))
    stage.report("b", Reported(1, replace(wanted("n", 1), user="eve")))
    assert stage.ends("b")[0].error.condition == names.UNAUTHORIZED_ACCESS


def test_a_link_waits_a_while_until_the_home_knows_a_log_that_another_node_created() -> None:
    stage = Stage()
    logs = [None, LOG]
    stage.serving = Serving(
        stage.states, 1, lambda _incarnation: logs[0], settings=SETTINGS, limits=LIMITS, times=TIMES
    )
    link = Reported(1, wanted("m", 0))
    stage.report("a", link)
    stage.now_ms += TIMES.unknown_ms - 1
    stage.report("a", link)
    assert not stage.ends("a")
    logs.reverse()
    stage.report("a", link)
    stage.commit()
    assert stage.owns("a")


def test_a_link_is_refused_if_the_home_never_learns_of_the_log() -> None:
    stage = Stage()
    stage.serving = Serving(
        stage.states, 1, lambda _incarnation: None, settings=SETTINGS, limits=LIMITS, times=TIMES
    )
    link = Reported(1, wanted("m", 0))
    stage.report("a", link)
    stage.now_ms += TIMES.unknown_ms
    stage.report("a", link)
    (ends,) = stage.ends("a")
    assert ends.error.condition == names.NOT_FOUND
    assert "kafka.topics" in ends.error.description
