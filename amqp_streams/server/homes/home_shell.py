"""[io] Connects the buckets whose home is this node with Kafka: group, transactions, state topic.

`Home` decides, and this shell performs the effects in their order and brings the results. Everything here
runs on the event loop's thread; `kafka/sharing/` has the threads. Reports of nodes come through `report`, and
answers go to `on_reply`: how they travel between nodes is not decided here.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final, assert_never

from amqp_streams.errors import StorageError
from amqp_streams.homes.bucket import Commit, Fence, Load, Outcome, Reply
from amqp_streams.homes.home import Home
from amqp_streams.homes.membership import GivenBack, Leave
from amqp_streams.homes.messages import Report
from amqp_streams.homes.records import KEY, HomeRecord, decoded
from amqp_streams.homes.serving import Serving
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.sharing import producing
from amqp_streams.kafka.sharing.followed import Changes
from amqp_streams.kafka.sharing.following import StateFollower
from amqp_streams.kafka.sharing.member import Member, Request
from amqp_streams.kafka.sharing.refreshing import Refreshing
from amqp_streams.kafka.sharing.transactions import Transactions
from amqp_streams.node.writes import Wait

TICK_S: Final = 0.05
"""How often `HomeShell.tick` is called."""
_OUTCOMES: Final = {
    producing.Outcome.COMMITTED: Outcome.COMMITTED,
    producing.Outcome.ABORTED: Outcome.ABORTED,
    producing.Outcome.UNKNOWN: Outcome.UNKNOWN,
    producing.Outcome.FENCED: Outcome.FENCED,
}

log = logging.getLogger("amqp_streams.homes")


class HomeShell:
    """One per process. `found`: the state topic, see `find_or_create`.

    `on_reply`: sends an answer to a node. `on_home`: the state topic names the home of a bucket. `on_left`:
    no bucket is here any more, and this node has left the group. `boot_ms`, `wall_ms`: read CLOCK_BOOTTIME
    and the wall clock.
    """

    def __init__(
        self,
        home: Home,
        options: KafkaOptions,
        administration: Administration,
        found: FoundTopic,
        *,
        loop_call: Callable[..., object],
        boot_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        on_reply: Callable[[Reply], None],
        on_home: Callable[[int, HomeRecord], None],
        on_left: Callable[[], None],
    ) -> None:
        self.home: Final = home
        self._boot_ms: Final = boot_ms
        self._wall_ms: Final = wall_ms
        self._on_reply: Final = on_reply
        self._on_home: Final = on_home
        self._stopping = False
        self._generation = 0
        """Counts what the group has said."""
        self._owned: frozenset[int] = frozenset()
        self._requests: Final[dict[int, Request]] = {}
        """What the group has asked for, by generation, until it is given back."""
        self._fenced: Final[set[int]] = set()
        """The buckets that may have a producer."""
        self._said: Final[dict[int, str]] = {}
        """Why buckets have no home here, as the log says."""
        self._unloaded: Final[set[int]] = set()
        """Buckets that could not be read to their end: perhaps a transaction hangs."""
        self._unread: Final[set[int]] = set()
        """Buckets whose home was written by a later version, as the log says."""
        self._transactions: Final = Transactions(
            options.connection,
            found.name,
            prefix=options.names.prefix,
            loop_call=loop_call,
            boot_ms=boot_ms,
        )
        self._follower: Final = StateFollower(
            options.connection,
            administration,
            found,
            weak=options.weak,
            loop_call=loop_call,
            boot_ms=boot_ms,
            on_changes=self._changed,
            on_lost=self._states_lost,
        )
        self._refreshing: Final = Refreshing(
            administration,
            found.name,
            found.settings.partitions,
            lambda bucket: self._follower.states.buckets[bucket].position,
            loop_call=loop_call,
            boot_ms=boot_ms,
        )
        self._member: Final = Member(
            options.connection,
            found.name,
            group=f"{options.names.prefix}.nodes",
            loop_call=loop_call,
            on_assigned=self._assigned,
            on_revoking=self._revoking,
            on_lost=self._expelled,
            on_left=on_left,
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps this node from being a home, in words; empty if nothing does."""
        member = self._member.problem
        return (*([f"the group of the nodes: {member}"] if member else []), *self._follower.problems)

    @property
    def threads(self) -> int:
        """How many buckets have a thread for their transactions."""
        return self._transactions.threads

    # -- for requests: see `Here`

    def states(self, bucket: int) -> Mapping[str, bytes]:
        """See `Here.states`."""
        serving = self.home.serving(bucket)
        return self._follower.states.buckets[bucket].values if serving is None else serving.states.values

    def serving(self, bucket: int) -> Serving | None:
        """See `Here.serving`."""
        return self.home.serving(bucket)

    def deciding(self, bucket: int) -> Serving | None:
        """See `Here.deciding`."""
        return self.home.deciding(bucket)

    def current(self, bucket: int) -> Serving | None:
        """See `describing.Here.current`."""
        return self.home.current(bucket, self._boot_ms())

    def refreshed(self) -> Generator[Wait, None, None]:
        """Let this node read all that homes have written up to now.

        Raises:
            StorageError: it cannot be read.
        """
        wait = Wait()
        self._refreshing.ask(lambda failure: wait.ended(failure, 0))
        if not wait.over:
            yield wait
        if wait.failure is not None:
            raise wait.failure

    def report(self, report: Report) -> None:
        """A node reports to a home that is here."""
        self.home.report(report, self._boot_ms())
        self._perform()

    def tick(self) -> None:
        """Called each `TICK_S`."""
        self._follower.tick()
        self._refreshing.tick()
        self.home.tick(self._boot_ms(), self._wall_ms())
        # A home that left late, after the group had given the bucket back to this node.
        if not self._stopping and not self._requests and self._owned - self.home.buckets.keys():
            self._assign(self._owned)
        self._perform()

    def stop(self) -> None:
        """Leave all buckets in order, and then the group. `on_left` is called at the end."""
        self._stopping = True
        self.home.stop(self._boot_ms())
        self._perform()

    def close(self, within_s: float) -> bool:
        """End the threads. What is still here is given up, as if the process had ended.

        Returns whether all threads have ended in time.
        """
        self._stopping = True
        self._member.leave()
        self._give_all_back()
        left = self._member.join(within_s)
        ended = self._transactions.close(within_s)
        self._follower.close()
        return left and ended

    # -- from the group

    def _assigned(self, owned: frozenset[int]) -> None:
        self._owned = owned
        self._assign(owned)
        self._perform()

    def _assign(self, buckets: frozenset[int]) -> None:
        self._generation += 1
        self.home.assigned(self._generation, buckets, self._boot_ms())

    def _revoking(self, request: Request) -> None:
        self._generation += 1
        self._owned -= request.buckets
        self._requests[self._generation] = request
        self.home.revoking(self._generation, request.buckets, self._boot_ms())
        self._perform()

    def _expelled(self) -> None:
        self._owned = frozenset()
        self._give_all_back()
        self.home.lost(self._boot_ms())
        self._perform()

    def _give_all_back(self) -> None:
        for request in self._requests.values():
            request.give_back()
        self._requests.clear()

    # -- from the state topic

    def _changed(self, bucket: int, changes: Changes) -> None:
        for key, value in changes:
            if key != KEY or value is None:
                continue
            try:
                record = decoded(value)
            except StorageError as error:
                if bucket not in self._unread:
                    log.error("home_unreadable bucket=%s reason=%s", bucket, error)
                self._unread.add(bucket)
                continue
            self._unread.discard(bucket)
            self.home.follow(bucket, record)
            self._on_home(bucket, record)

    def _states_lost(self, buckets: frozenset[int], _why: str) -> None:
        """The homes of these buckets have decided with states that the topic does not have any more."""
        if self._stopping:
            self.home.lost(self._boot_ms())
        else:
            asked = (request.buckets for request in self._requests.values())
            here = self._owned.union(*asked)
            self._assign(here - buckets)
            self._assign(here)
        self._perform()

    # -- effects

    def _perform(self) -> None:
        while effects := self.home.take_effects():
            for effect in effects:
                match effect:
                    case Fence(bucket, attempt):
                        self._fenced.add(bucket)
                        answered, hangs = partial(self._answered, bucket, attempt), bucket in self._unloaded
                        # Once for each load that failed: Kafka may be too slow for another transaction.
                        self._unloaded.discard(bucket)
                        self._transactions.fence(bucket, answered, ends_hanging=hangs)
                    case Load(bucket, attempt):
                        self._follower.load(bucket, partial(self._loaded, bucket, attempt))
                    case Commit(bucket, attempt, changes):
                        self._transactions.commit(bucket, changes, partial(self._ended, bucket, attempt))
                    case Reply():
                        self._on_reply(effect)
                    case GivenBack(generation, _):
                        request = self._requests.pop(generation, None)
                        if request is not None:
                            request.give_back()
                    case Leave():
                        self._member.leave()
                    case _:
                        assert_never(effect)
        for bucket in self._fenced - self.home.buckets.keys():
            self._fenced.discard(bucket)
            self._unloaded.discard(bucket)
            self._transactions.release(bucket)

    def _answered(self, bucket: int, attempt: int, failure: str | None) -> None:
        if failure is None:
            self.home.fenced(bucket, attempt, self._boot_ms())
        else:
            self._warn(bucket, f"not fenced: {failure}")
            self.home.failed(bucket, attempt, self._boot_ms())
        self._perform()

    def _loaded(self, bucket: int, attempt: int, result: Mapping[str, bytes] | StorageError) -> None:
        try:
            if isinstance(result, StorageError):
                self._unloaded.add(bucket)
                raise result
            self.home.loaded(bucket, attempt, result, self._boot_ms())
        except StorageError as error:
            self._warn(bucket, f"not loaded: {error}")
            self.home.failed(bucket, attempt, self._boot_ms())
        else:
            self._said.pop(bucket, None)
        self._perform()

    def _warn(self, bucket: int, words: str) -> None:
        """Log why a bucket has no home here, once: the home tries again twice a second."""
        if self._said.get(bucket) != words:
            log.warning("home_waits bucket=%s reason=%s", bucket, words)
        self._said[bucket] = words

    def _ended(self, bucket: int, attempt: int, ended: producing.Ended) -> None:
        if ended.outcome is not producing.Outcome.COMMITTED:
            outcome = ended.outcome.name.lower()
            log.warning("home_commit_failed bucket=%s outcome=%s reason=%s", bucket, outcome, ended.reason)
        self.home.ended(bucket, attempt, _OUTCOMES[ended.outcome], self._boot_ms())
        self._perform()
