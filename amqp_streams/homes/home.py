"""All buckets whose home is one node. Pure: the shell performs the effects, in their order.

Law: results and reports for a bucket that is not here any more change nothing.
"""

from collections.abc import Collection, Mapping
from itertools import count
from typing import Final, TypeAlias, assert_never

from amqp_streams.config import GroupSettings, Limits
from amqp_streams.homes.bucket import Bucket, Commit, Fence, Left, Load, Outcome, Reply
from amqp_streams.homes.counts import Counts
from amqp_streams.homes.leases import Times
from amqp_streams.homes.membership import Drain, Drop, GivenBack, Leave, Membership, Open
from amqp_streams.homes.messages import Report
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.serving import LogOf, Serving
from amqp_streams.homes.states import BucketStates

Effect: TypeAlias = Fence | Load | Commit | Reply | GivenBack | Leave


class Home:
    """`node`: the id of this process. `address`: where other nodes reach it."""

    def __init__(
        self, node: str, address: str, log_of: LogOf, *, settings: GroupSettings, limits: Limits, times: Times
    ) -> None:
        self.buckets: Final[dict[int, Bucket]] = {}
        self._effects: list[Effect] = []
        self._membership: Final = Membership()
        self._record: Final = HomeRecord(0, node, address)
        self._log_of: Final = log_of
        self._settings: Final = settings
        self._limits: Final = limits
        self._times: Final = times
        self._attempts: Final = count(1)
        self._terms: Final[dict[int, int]] = {}
        self.counts: Final = Counts()

    def take_effects(self) -> list[Effect]:
        """The effects since the last call."""
        for number, bucket in list(self.buckets.items()):
            self._collect(number, bucket)
        effects, self._effects = self._effects, []
        return effects

    # -- from the group

    def assigned(self, generation: int, buckets: Collection[int], now_ms: int) -> None:
        """See `Membership.assigned`."""
        self._membership.assigned(generation, buckets)
        self._manage(now_ms)

    def revoking(self, generation: int, buckets: Collection[int], now_ms: int) -> None:
        """See `Membership.revoking`."""
        self._membership.revoking(generation, buckets)
        self._manage(now_ms)

    def lost(self, now_ms: int) -> None:
        """See `Membership.lost`."""
        self._membership.lost()
        self._manage(now_ms)

    def stop(self, now_ms: int) -> None:
        """See `Membership.stop`."""
        self._membership.stop()
        self._manage(now_ms)

    # -- from the state topic

    def follow(self, bucket: int, record: HomeRecord) -> None:
        """The state topic has this record."""
        self._terms[bucket] = max(self._terms.get(bucket, 0), record.term)

    def fenced(self, bucket: int, attempt: int, now_ms: int) -> None:
        """See `Bucket.fenced`."""
        found = self.buckets.get(bucket)
        if found is not None:
            found.fenced(attempt, now_ms)

    def failed(self, bucket: int, attempt: int, now_ms: int) -> None:
        """See `Bucket.failed`."""
        found = self.buckets.get(bucket)
        if found is not None:
            found.failed(attempt, now_ms)

    def loaded(self, bucket: int, attempt: int, values: Mapping[str, bytes], now_ms: int) -> None:
        """See `Bucket.loaded`."""
        found = self.buckets.get(bucket)
        if found is not None:
            found.loaded(attempt, values, self._terms.get(bucket, 0), now_ms)

    def ended(self, bucket: int, attempt: int, outcome: Outcome, now_ms: int) -> None:
        """See `Bucket.ended`."""
        found = self.buckets.get(bucket)
        if found is not None:
            found.ended(attempt, outcome, now_ms)
            self._collect(bucket, found)
            self._manage(now_ms)

    # -- from nodes, and time

    def report(self, report: Report, now_ms: int) -> None:
        """See `Bucket.report`."""
        found = self.buckets.get(report.bucket)
        if found is not None:
            found.report(report, now_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """See `Bucket.tick`."""
        for number, bucket in list(self.buckets.items()):
            bucket.tick(now_ms, wall_ms)
            self._collect(number, bucket)
        self._manage(now_ms)

    # -- for requests

    def serving(self, bucket: int) -> Serving | None:
        """See `Here.serving`."""
        found = self.buckets.get(bucket)
        return None if found is None else found.serving

    def deciding(self, bucket: int) -> Serving | None:
        """See `Here.deciding`."""
        found = self.buckets.get(bucket)
        return None if found is None else found.deciding

    def current(self, bucket: int, now_ms: int) -> Serving | None:
        """See `describing.Here.current`."""
        found = self.buckets.get(bucket)
        # The state topic may name a later home of which this one has not heard otherwise.
        if found is None or self._terms.get(bucket, 0) > found.record.term:
            return None
        return found.current(now_ms)

    # -- buckets

    def _open_serving(self, states: BucketStates, term: int) -> Serving:
        return Serving(
            states, term, self._log_of, settings=self._settings, limits=self._limits, times=self._times,
            counts=self.counts,
        )  # fmt: skip

    def _manage(self, now_ms: int) -> None:
        """Perform what the membership decides about buckets."""
        while self._membership.effects:
            effect = self._membership.effects.pop(0)
            match effect:
                case Open(bucket):
                    self.buckets[bucket] = found = Bucket(
                        bucket,
                        self._record,
                        self._open_serving,
                        self._times,
                        self._attempts,
                        counts=self.counts,
                    )
                    found.begin()
                case Drain(bucket):
                    self.buckets[bucket].drain(now_ms)
                    self._collect(bucket, self.buckets[bucket])
                case Drop(bucket):
                    self.buckets.pop(bucket, None)
                case GivenBack() | Leave():
                    self._effects.append(effect)
                case _:
                    assert_never(effect)

    def _collect(self, number: int, bucket: Bucket) -> None:
        for effect in bucket.effects:
            if isinstance(effect, Left):
                self.buckets.pop(number, None)
                self._membership.left(number)
            else:
                self._effects.append(effect)
        bucket.effects.clear()
