"""Which workers run, which one leads, and when a worker is started again."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from knative_gateway.workers.supervision import Effect, GiveUp, Kill, Lead, Start, Supervision, Times
from tests.properties import examples

TIMES = Times(pause=1.0, pause_max=8.0, stable=10.0, late=5.0, hung=20.0, begin=60.0, silent=75.0, gap=5.0)
KILLED = -9


def up(supervision: Supervision, worker: int, now_s: float, problem: str | None = None) -> Sequence[Effect]:
    return supervision.reported(worker, problem, up=True, now_s=now_s)


def started(workers: int = 3) -> Supervision:
    """All workers are up since 0 s."""
    supervision = Supervision(workers, TIMES)
    supervision.begin(0.0)
    for worker in range(workers):
        up(supervision, worker, 0.0)
    return supervision


def test_the_first_worker_starts_alone_and_leads_and_the_others_follow_when_it_is_up() -> None:
    supervision = Supervision(3, TIMES)
    assert supervision.begin(0.0) == [Start(0, leads=True)]
    assert supervision.reported(0, "starting", up=False, now_s=1.0) == []
    assert up(supervision, 0, 2.0, "not whole") == [Start(1, leads=False), Start(2, leads=False)]
    assert supervision.problem(2.0) == "worker 0: not whole"
    assert up(supervision, 0, 3.0) == []
    assert supervision.problem(3.0) == "worker 1: it is starting"
    assert [*up(supervision, 1, 3.0), *up(supervision, 2, 3.0)] == []
    assert [supervision.leader, supervision.running] == [0, 3]
    assert up(supervision, 2, 4.0) == []
    assert supervision.problem(4.0) is None


@pytest.mark.parametrize("status", [1, 2])
def test_settings_that_no_worker_can_start_with_end_the_gateway(status: int) -> None:
    supervision = Supervision(2, TIMES)
    supervision.begin(0.0)
    assert supervision.ended(0, status, 1.0) == [GiveUp(status)]


def test_the_error_of_the_first_worker_is_that_of_the_gateway() -> None:
    supervision = Supervision(2, TIMES)
    supervision.begin(0.0)
    supervision.failed(0, "tokens: cannot read t", 1.0)
    assert supervision.ended(0, 2, 1.0) == [GiveUp(2, "tokens: cannot read t")]


def test_why_a_worker_does_not_start_is_named_until_it_is_up() -> None:
    supervision = started(2)
    supervision.ended(1, KILLED, 100.0)
    assert supervision.tick(101.0) == [Start(1, leads=False)]
    supervision.failed(1, "the state database: locked", 102.0)
    supervision.ended(1, 1, 102.0)
    assert supervision.problem(102.0) == (
        "worker 1: it did not start: the state database: locked; it is started again after 2.0 s"
    )
    assert supervision.tick(104.0) == [Start(1, leads=False)]
    assert supervision.problem(104.0) == "worker 1: it is starting again after: the state database: locked"
    assert [*up(supervision, 0, 105.0), *up(supervision, 1, 105.0)] == []
    assert supervision.problem(105.0) is None
    supervision.ended(1, KILLED, 106.0)
    assert supervision.problem(106.0) == "worker 1: it ended with status -9; it is started again after 4.0 s"


def test_a_first_worker_that_is_killed_before_it_is_up_starts_again_and_leads() -> None:
    supervision = Supervision(2, TIMES)
    supervision.begin(0.0)
    assert supervision.ended(0, KILLED, 1.0) == []
    assert supervision.tick(1.5) == []
    assert supervision.tick(2.0) == [Start(0, leads=True)]


def test_the_leader_s_end_makes_another_running_worker_lead_at_once() -> None:
    supervision = started()
    assert supervision.ended(0, KILLED, 100.0) == [Lead(1)]
    assert supervision.problem(100.0) == "worker 0: it ended with status -9; it is started again after 1.0 s"
    assert supervision.tick(101.0) == [Start(0, leads=False)]
    assert up(supervision, 0, 102.0) == []
    assert supervision.leader == 1


def test_when_all_have_ended_the_first_that_is_up_again_leads() -> None:
    supervision = started(2)
    assert supervision.ended(1, KILLED, 100.0) == []
    assert supervision.ended(0, 1, 100.0) == [], "later on, a status does not end the gateway"
    assert supervision.leader is None
    assert supervision.tick(101.0) == [Start(0, leads=False), Start(1, leads=False)]
    assert up(supervision, 1, 102.0) == [Lead(1)]
    assert up(supervision, 0, 103.0) == []


def test_the_pause_doubles_up_to_its_bound_and_a_stable_run_resets_it() -> None:
    supervision, now_s, pauses = started(2), 0.0, []
    for _ in range(5):
        supervision.ended(1, KILLED, now_s)
        assert supervision.next_s is not None
        pauses.append(supervision.next_s - now_s)
        now_s = supervision.next_s
        up(supervision, 0, now_s)
        supervision.tick(now_s)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert supervision.restarts == [0, 5]
    supervision.ended(1, KILLED, now_s + TIMES.stable)
    assert supervision.next_s == now_s + TIMES.stable + TIMES.pause


def test_a_worker_that_does_not_report_is_named_then_killed_once_and_started_again() -> None:
    supervision = started(2)
    for second in range(1, 20):
        assert up(supervision, 0, float(second)) == []
    assert supervision.problem(4.0) is None
    assert supervision.late(4.0) == set()
    assert supervision.problem(5.0) == "worker 1: it has not answered for 5 s"
    assert supervision.late(5.0) == {1}
    assert supervision.trouble(19.0) is None, "not healthy would end all workers"
    assert supervision.next_s == 20.0
    assert supervision.tick(20.0) == [Kill(1)]
    assert supervision.tick(21.0) == [], "it may take a moment to end"
    assert up(supervision, 1, 21.0) == [], "a late report does not bring it back"
    supervision.ended(1, KILLED, 22.0)
    assert supervision.tick(23.0) == [Start(1, leads=False)]
    assert supervision.late(23.0) == set()


def test_a_worker_that_starts_may_be_silent_for_longer() -> None:
    """Many workers that start at once share the cores."""
    supervision = Supervision(1, TIMES)
    supervision.begin(0.0)
    for second in range(1, 60):
        assert supervision.tick(float(second)) == []
    assert supervision.tick(60.0) == [Kill(0)]


def test_a_worker_that_cannot_be_killed_makes_the_gateway_not_healthy() -> None:
    supervision = started(2)
    for second in range(1, 76):
        up(supervision, 0, float(second))
    assert supervision.trouble(74.0) is None
    assert supervision.trouble(75.0) == "worker 1: it has not answered for 75 s"


def test_after_a_stop_of_the_parent_no_worker_is_killed_for_reports_that_were_not_read_yet() -> None:
    supervision = started(3)
    assert supervision.tick(1_000.0) == []
    assert supervision.trouble(1_000.0) is None
    assert up(supervision, 0, 1_000.0) == []
    assert supervision.next_s == 1_020.0


class Workers(RuleBasedStateMachine):
    """Any sequence of reports, ends and time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.running: dict[int, bool] = {}
        """Whether each running worker leads."""
        self.was_up = False
        self.supervision = Supervision(3, TIMES)
        self.do(self.supervision.begin(0.0))

    def do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(worker, leads):
                    assert worker not in self.running, "a worker runs once"
                    self.running[worker] = leads
                case Lead(worker):
                    assert not any(self.running.values()), "the former leader has ended"
                    self.running[worker] = True
                case Kill(worker):
                    assert worker in self.running
                    del self.running[worker]
                    self.do(self.supervision.ended(worker, KILLED, self.now_s))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_up=st.booleans())
    def report(self, data: st.DataObject, is_up: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running)))
        self.was_up = self.was_up or is_up
        self.do(self.supervision.reported(worker, None, up=is_up, now_s=self.now_s))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[worker]
        self.do(self.supervision.ended(worker, KILLED, self.now_s))

    @rule(seconds=st.floats(0.1, 100.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.do(self.supervision.tick(self.now_s))

    @invariant()
    def one_leads_at_most_and_it_runs(self) -> None:
        leaders = [worker for worker, leads in self.running.items() if leads]
        assert leaders == ([] if self.supervision.leader is None else [self.supervision.leader])

    @invariant()
    def what_ended_starts_again_within_the_longest_pause(self) -> None:
        due_s = self.supervision.next_s
        if len(self.running) < 3 and self.was_up:
            assert due_s is not None
            assert due_s <= self.now_s + TIMES.pause_max


def test_one_worker_leads_at_most_and_it_runs_whatever_ends_when() -> None:
    run_state_machine_as_test(
        Workers, settings=settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
    )


@given(st.integers(1, 64))
def test_the_gateway_is_ready_exactly_when_all_are(workers: int) -> None:
    supervision = started(workers)
    assert supervision.problem(0.0) is None
    up(supervision, workers - 1, 1.0, "the event log node is unreachable")
    assert supervision.problem(1.0) == f"worker {workers - 1}: the event log node is unreachable"
