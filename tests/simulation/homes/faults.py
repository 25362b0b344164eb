"""Faults that are planted in homes, to show that the checks of the simulation find them.

Each changes one line of the product, or, where the shell must keep a promise, of the shell of the simulation.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from amqp_streams.homes.bucket import Bucket, Commit
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Answer, Report
from amqp_streams.homes.reporting import Reporting
from amqp_streams.homes.serving import Serving
from amqp_streams.homes.sessions import Claimant, Session, State
from amqp_streams.homes.states import BucketStates
from tests.simulation.homes.kafka import Kafka
from tests.simulation.homes.nodes import Process

Plant = AbstractContextManager[object]


def _around(owner: type, name: str, make: Callable[[Any], Any]) -> Plant:
    """Replace a method by what `make` returns for it."""
    return patch.object(owner, name, make(getattr(owner, name)))


def no_wait_for_the_old_lease() -> Plant:
    def make(original: Any) -> Any:
        def loaded(self: Bucket, attempt: int, values: Any, term: int, now_ms: int) -> None:
            original(self, attempt, values, term, now_ms)
            self._outlasted_ms = 0

        return loaded

    return _around(Bucket, "loaded", make)


def lease_counted_from_the_answer() -> Plant:
    def make(original: Any) -> Any:
        def answer(self: Reporting, answer: Answer, now_ms: int) -> None:
            home = self._home(answer.bucket)
            if answer.number in home.sent:
                home.sent[answer.number] = now_ms
            original(self, answer, now_ms)

        return answer

    return _around(Reporting, "answer", make)


def no_fence_before_the_load() -> Plant:
    """The producer is opened, but does not end the one before: the broker accepts both."""

    def opened(self: Kafka, bucket: int) -> int:
        return self.partitions[bucket].epoch

    return patch.object(Kafka, "open_producer", opened)


def load_that_ends_before_open_transactions() -> Plant:
    def load(self: Process, bucket: int, attempt: int) -> None:
        partition = self.world.kafka.partitions[bucket]

        def then(end: int | None) -> None:
            values: dict[str, bytes] = {}
            for changes in partition.read(0, end or 0):
                values.update({key: value for key, value in changes.items() if value is not None})
            self.home.loaded(bucket, attempt, values, self.boot_ms())

        self.ask(partition.stable, then)

    return patch.object(Process, "_load", load)


def position_written_without_a_fence() -> Plant:
    def make(original: Any) -> Any:
        def produce(self: Kafka, bucket: int, epoch: int, changes: Any) -> Any:
            only_positions = all(key.startswith("cursor/") for key in changes)
            return original(self, bucket, self.partitions[bucket].epoch if only_positions else epoch, changes)

        return produce

    def make_end(original: Any) -> Any:
        def end(self: Kafka, bucket: int, epoch: int, *, commits: bool) -> Any:
            partition = self.partitions[bucket]
            only_positions = partition.open is not None and all(
                key.startswith("cursor/") for changes in partition.open.changes for key in changes
            )
            return original(self, bucket, partition.epoch if only_positions else epoch, commits=commits)

        return end

    class Both:
        def __enter__(self) -> None:
            self.parts = [_around(Kafka, "produce", make), _around(Kafka, "end", make_end)]
            for part in self.parts:
                part.__enter__()

        def __exit__(self, *error: object) -> None:
            for part in self.parts:
                part.__exit__(None, None, None)

    return Both()


def told_before_the_transaction() -> Plant:
    """Epochs, first positions and settlements count as durable when their transaction begins."""

    def make(original: Any) -> Any:
        def begin(self: Bucket, changes: Any, now_ms: int) -> None:
            original(self, changes, now_ms)
            if self.serving is not None:
                self.serving.written(now_ms, self.states.committed)

        return begin

    return _around(Bucket, "_begin_commit", make)


def release_lost() -> Plant:
    def make(original: Any) -> Any:
        def take_in(self: Serving, session: Session, report: Report, came_ms: int) -> None:
            before = dict(session.known)
            original(self, session, report, came_ms)
            session.known = before | session.known

        return take_in

    return _around(Serving, "_take_in", make)


def answer_of_an_earlier_term_accepted() -> Plant:
    def make(original: Any) -> Any:
        def answer(self: Reporting, answer: Answer, now_ms: int) -> None:
            record = self._home(answer.bucket).record
            term = answer.term if record is None else record.term
            home = self._home(answer.bucket)
            home.sent.setdefault(answer.number, now_ms - 1)
            for link in home.links.values():
                if link.serial is not None:
                    link.serial = (term, link.serial[1])
            original(self, replace(answer, term=term), now_ms)

        return answer

    return _around(Reporting, "answer", make)


def no_wait_for_an_evicted_owner() -> Plant:
    def make(original: Any) -> Any:
        def ready(self: Serving, claimant: Claimant) -> None:
            self._barriers._until.clear()
            original(self, claimant)

        return ready

    return _around(Serving, "_ready", make)


def sends_after_its_lease() -> Plant:
    def may_send(self: Reporting, number: int, now_ms: int) -> bool:
        link = self._links.get(number)
        return link is not None and link.serial is not None and not link.leaving and not link.gone

    return patch.object(Reporting, "may_send", may_send)


def silent_node_forgotten_too_early() -> Plant:
    def make(original: Any) -> Any:
        def tick(self: Serving, now_ms: int) -> None:
            for session in self.sessions.values():
                session.heard_ms -= 1500 if session.heard_ms > now_ms - 1500 else 0
            original(self, now_ms)

        return tick

    return _around(Serving, "tick", make)


def nothing_taken_over_from_the_home_before() -> Plant:
    def make(original: Any) -> Any:
        def resume(self: Serving, reports: Any, now_ms: int) -> None:
            original(self, (), now_ms)

        return resume

    return _around(Serving, "resume", make)


def link_open_after_a_stop_in_a_write() -> Plant:
    return patch.object(Reporting, "wrote", lambda _self, _number, _now_ms: None)


def grant_told_after_its_end() -> Plant:
    return patch.object(Reporting, "may_grant", lambda _self, _number, _now_ms: True)


def cursor_granted_before_it_is_written() -> Plant:
    def make(original: Any) -> Any:
        def opened(self: Serving, claimant: Claimant) -> None:
            original(self, claimant)
            if claimant.state is State.WAITING:
                self._ready(claimant)

        return opened

    return _around(Serving, "_open", make)


def settlements_of_a_link_that_does_not_own() -> Plant:
    """What a link reports moves the cursor of its group, whether it owns the partition or not."""

    def advance(self: Serving, claimant: Claimant, reported: Any) -> None:
        key = None
        for state, cursor in self._opened.items():
            if claimant.wanted.claim is not None and cursor.key.group == claimant.wanted.claim.group:
                key = state
        if key is not None:
            for index, at in reported.positions:
                if index in self._opened[key].positions:
                    self.cursors.reset(self._opened[key], {index: at})
                    self.moved = True

    return patch.object(Serving, "_advance", advance)


def lost_changes_of_an_aborted_transaction() -> Plant:
    def put_back(self: BucketStates, changes: Mapping[str, bytes | None]) -> None:
        self._taken = self._ended

    return patch.object(BucketStates, "put_back", put_back)


def epoch_not_written() -> Plant:
    def make(original: Any) -> Any:
        def told(self: Bucket, changes: Any, now_ms: int) -> None:
            original(self, changes, now_ms)
            effect = self.effects[-1]
            assert isinstance(effect, Commit)
            kept = {key: value for key, value in changes.items() if not key.startswith("epoch/")}
            self.effects[-1] = replace(effect, changes=kept or {"none": b"1"})

        return told

    return _around(Bucket, "_begin_commit", make)


def wait_shorter_than_the_lease() -> Plant:
    """A lease counts as over before it is."""
    return patch.object(Times, "outlasting_ms", 2500)


FAULTS: dict[str, tuple[Callable[[], Plant], int, bool]] = {
    "no wait for the old lease": (no_wait_for_the_old_lease, 0, True),
    "lease counted from the answer": (lease_counted_from_the_answer, 17, True),
    "no fence before the load": (no_fence_before_the_load, 0, True),
    "load that ends before open transactions": (load_that_ends_before_open_transactions, 28, True),
    "position written without a fence": (position_written_without_a_fence, 4, True),
    "told before the transaction": (told_before_the_transaction, 0, True),
    "release lost": (release_lost, 11, False),
    "answer of an earlier term accepted": (answer_of_an_earlier_term_accepted, 4, True),
    "no wait for an evicted owner": (no_wait_for_an_evicted_owner, 15, True),
    "sends after its lease": (sends_after_its_lease, 266, False),
    "silent node forgotten too early": (silent_node_forgotten_too_early, 6, True),
    "nothing taken over from the home before": (nothing_taken_over_from_the_home_before, 0, True),
    "link open after a stop in a write": (link_open_after_a_stop_in_a_write, 6, False),
    "grant told after its end": (grant_told_after_its_end, 18, False),
    "cursor granted before it is written": (cursor_granted_before_it_is_written, 0, True),
    "settlements of a link that does not own": (settlements_of_a_link_that_does_not_own, 0, False),
    "epoch not written": (epoch_not_written, 2, False),
    "wait shorter than the lease": (wait_shorter_than_the_lease, 17, True),
    "lost changes of an aborted transaction": (lost_changes_of_an_aborted_transaction, 134, False),
}
"""Each with a seed in which it is found, and whether that run is a harsh one."""
