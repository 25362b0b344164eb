"""All buckets of a node: effects in order, and nothing of a bucket that is not here any more."""

from amqp_streams.homes.bucket import Commit, Fence, Load, Outcome
from amqp_streams.homes.home import Home
from amqp_streams.homes.membership import GivenBack, Leave
from amqp_streams.homes.messages import Report
from amqp_streams.homes.records import KEY, HomeRecord, decoded
from tests.amqp_streams.homes.stage import LIMITS, SETTINGS, TIMES, log_of


def opened() -> Home:
    home = Home("me.1", "me", log_of, settings=SETTINGS, limits=LIMITS, times=TIMES)
    home.assigned(1, [3], 0)
    return home


def test_a_bucket_is_fenced_loaded_and_written_with_a_term_after_the_last_one_seen() -> None:
    home = opened()
    home.follow(3, HomeRecord(7, "old.1", "old"))
    assert home.take_effects() == [Fence(3, 1)]
    home.fenced(3, 1, 10)
    assert home.take_effects() == [Load(3, 1)]
    home.loaded(3, 1, {}, 20)
    (commit,) = home.take_effects()
    assert isinstance(commit, Commit)
    record = commit.changes[KEY]
    assert record is not None
    assert decoded(record).term == 8


def test_a_late_result_does_not_count_for_a_bucket_that_was_opened_again() -> None:
    home = opened()
    home.take_effects()
    home.lost(5)
    home.assigned(2, [3], 10)
    assert home.take_effects() == [Fence(3, 2)]
    home.fenced(3, 1, 20)
    assert not home.take_effects()


def test_what_is_said_about_a_bucket_that_is_not_here_changes_nothing() -> None:
    home = opened()
    home.take_effects()
    home.lost(5)
    home.fenced(3, 1, 10)
    home.failed(3, 1, 10)
    home.loaded(3, 1, {}, 10)
    home.ended(3, 1, Outcome.COMMITTED, 10)
    home.report(Report("n.1", 3, 1, 1, ()), 10)
    home.tick(20, 0)
    assert not home.take_effects()


def test_a_bucket_is_given_back_and_the_group_left_when_the_home_has_left() -> None:
    home = opened()
    home.take_effects()
    home.revoking(2, [3], 5)
    assert home.take_effects() == [GivenBack(2, frozenset({3}))]
    assert not home.buckets
    home.stop(10)
    assert home.take_effects() == [Leave()]
