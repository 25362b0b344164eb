"""The phases of a home: nothing is granted before the fence, the load and the old lease are behind it."""

from itertools import count

import pytest

from amqp_streams.homes.bucket import Bucket, Commit, Effect, Fence, Left, Load, Outcome, Phase, Reply
from amqp_streams.homes.messages import Owns, Report, Reported
from amqp_streams.homes.records import KEY, HomeRecord, decoded, encoded
from amqp_streams.homes.serving import Serving
from tests.amqp_streams.homes.stage import LIMITS, SETTINGS, TIMES, log_of, wanted

OLD = encoded(HomeRecord(4, "old.1", "old"))
LET_GO = encoded(HomeRecord(4, "old.1", "old", let_go=True))


class Home:
    """A bucket whose Kafka answers at once, except where a test says otherwise."""

    def __init__(self) -> None:
        self.bucket = Bucket(
            0,
            HomeRecord(0, "me.1", "me"),
            lambda states, term: Serving(states, term, log_of, settings=SETTINGS, limits=LIMITS, times=TIMES),
            TIMES,
            count(1),
        )
        self.bucket.begin()
        self.now = 50_000
        self.values: dict[str, bytes] = {}
        self.replies: list[Reply] = []
        self.number = 0

    def taken(self) -> list[Effect]:
        effects = list(self.bucket.effects)
        self.bucket.effects.clear()
        self.replies += [each for each in effects if isinstance(each, Reply)]
        return [each for each in effects if not isinstance(each, Reply)]

    def commit(self, outcome: Outcome = Outcome.COMMITTED) -> Commit:
        (effect,) = self.taken()
        assert isinstance(effect, Commit)
        self.bucket.ended(effect.attempt, outcome, self.now)
        return effect

    def commits(self) -> None:
        """Commit until nothing is left to write."""
        while any(isinstance(each, Commit) for each in self.bucket.effects):
            self.commit()
        self.taken()

    def waiting(self, old: bytes | None = OLD) -> None:
        """Fence, load, and write the record."""
        (fence,) = self.taken()
        assert fence == Fence(0, self.bucket.attempt)
        self.bucket.fenced(self.bucket.attempt, self.now)
        assert self.taken() == [Load(0, self.bucket.attempt)]
        self.bucket.loaded(self.bucket.attempt, {} if old is None else {KEY: old}, 0, self.now)

    def serving(self, old: bytes | None = LET_GO) -> None:
        self.waiting(old)
        self.commit()
        self.report()
        self.now += TIMES.outlasting_ms
        self.tick()
        self.commits()
        self.report()
        self.commits()
        assert self.bucket.phase is Phase.SERVING

    def tick(self) -> None:
        self.bucket.tick(self.now, 0)

    def report(self, *links: Reported, yielded: bool = False) -> None:
        self.number += 1
        message = Report("n.1", 0, self.bucket.record.term, self.number, links, yielded=yielded)
        self.bucket.report(message, self.now)

    def granted(self) -> bool:
        self.taken()
        return any(isinstance(each, Owns) for reply in self.replies for each in reply.answer.verdicts)


def test_a_new_home_writes_a_greater_term_and_waits_for_the_lease_of_the_old_one() -> None:
    home = Home()
    home.waiting()
    fenced = home.now
    commit = home.commit()
    record = commit.changes[KEY]
    assert record is not None
    assert decoded(record) == HomeRecord(5, "me.1", "me")
    while home.now < fenced + TIMES.outlasting_ms:
        home.report(Reported(1, wanted("m", 0)))
        home.tick()
        home.commits()
        assert home.bucket.phase is Phase.WAITING
        assert not home.granted()
        home.now += 50
    home.report(Reported(1, wanted("m", 0)))
    home.tick()
    home.commits()
    assert home.granted()


@pytest.mark.parametrize("old", [LET_GO, None])
def test_after_a_home_that_let_go_the_new_one_waits_for_reports_only(old: bytes | None) -> None:
    home = Home()
    home.waiting(old)
    home.commit()
    home.report(Reported(1, wanted("m", 0)))
    home.now += TIMES.gather_ms
    home.tick()
    home.commits()
    assert home.granted()


def test_the_term_is_greater_than_each_that_the_node_has_seen() -> None:
    home = Home()
    home.taken()
    home.bucket.fenced(home.bucket.attempt, home.now)
    home.bucket.loaded(home.bucket.attempt, {KEY: OLD}, 9, home.now)
    assert home.bucket.record.term == 10


def test_results_of_an_earlier_attempt_change_nothing() -> None:
    home = Home()
    early = home.bucket.attempt
    home.bucket.failed(early, home.now)
    home.taken()
    home.now += TIMES.retry_ms
    home.tick()
    home.bucket.fenced(early, home.now)
    home.bucket.loaded(early, {}, 0, home.now)
    assert home.taken() == [Fence(0, home.bucket.attempt)]


def test_the_lease_begins_when_the_transaction_began() -> None:
    home = Home()
    home.waiting()
    began = home.now
    home.now += 1500
    home.commit()
    assert home.bucket.lease_end_ms == began + TIMES.lease_ms


def test_without_a_lease_a_home_says_only_that_it_is_there() -> None:
    home = Home()
    home.serving()
    home.replies.clear()
    home.now += TIMES.lease_ms
    home.report(Reported(1, wanted("m", 0)))
    effects = home.taken()
    (reply,) = home.replies
    assert (reply.answer.processed, reply.answer.remaining_ms, reply.answer.verdicts) == (False, 0, ())
    # A transaction renews the lease, then the report counts.
    (commit,) = effects
    assert isinstance(commit, Commit)
    home.bucket.ended(commit.attempt, Outcome.COMMITTED, home.now)
    home.commits()
    assert home.granted()


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FENCED])
def test_after_an_unknown_outcome_the_home_fences_again_before_it_writes(outcome: Outcome) -> None:
    home = Home()
    home.waiting()
    home.commit(outcome)
    assert home.bucket.phase is Phase.FENCING
    home.now += TIMES.retry_ms
    home.tick()
    assert home.taken() == [Fence(0, home.bucket.attempt)]


def test_after_an_abort_the_same_changes_are_written_a_while_later() -> None:
    home = Home()
    home.waiting()
    first = home.commit(Outcome.ABORTED)
    home.tick()
    assert not home.taken()
    home.now += TIMES.retry_ms
    home.tick()
    assert home.commit().changes == first.changes


def test_a_report_of_another_term_changes_nothing() -> None:
    home = Home()
    home.serving()
    home.bucket.report(Report("n.1", 0, home.bucket.record.term - 1, 99, ()), home.now)
    home.bucket.report(Report("n.1", 0, home.bucket.record.term + 1, 99, ()), home.now)
    home.replies.clear()
    assert not home.taken()
    assert not home.replies


def test_a_home_that_leaves_calls_its_grants_back_before_it_lets_go() -> None:
    home = Home()
    home.serving()
    home.report(Reported(1, wanted("m", 0)))
    home.commits()
    (owns,) = [each for reply in home.replies for each in reply.answer.verdicts if isinstance(each, Owns)][:1]
    home.replies.clear()
    home.bucket.drain(home.now)
    assert not home.taken()
    assert [reply.answer.withdrawn for reply in home.replies] == [True]
    link = Reported(1, wanted("m", 0), owns.serial, 0, 0, ((0, 3),))
    home.report(link, yielded=True)
    commit = home.commit()
    record = commit.changes[KEY]
    assert record is not None
    assert decoded(record).let_go
    assert any(key.startswith("cursor/") for key in commit.changes)
    assert home.taken() == [Left(0)]


def test_a_home_whose_nodes_do_not_answer_leaves_without_letting_go() -> None:
    home = Home()
    home.serving()
    home.report(Reported(1, wanted("m", 0)))
    home.commits()
    home.bucket.drain(home.now)
    home.taken()
    home.now += TIMES.drain_ms
    home.tick()
    record = home.commit().changes[KEY]
    assert record is not None
    assert not decoded(record).let_go
    assert home.taken() == [Left(0)]


def test_a_home_that_still_waits_leaves_at_once() -> None:
    home = Home()
    home.waiting()
    home.taken()
    home.bucket.drain(home.now)
    assert home.taken() == [Left(0)]
    assert home.bucket.phase is Phase.OVER


def test_a_home_leaves_although_kafka_does_not_answer() -> None:
    home = Home()
    home.serving()
    home.bucket.drain(home.now)
    home.taken()
    home.now += 2 * TIMES.drain_ms
    home.tick()
    assert home.taken() == [Left(0)]
