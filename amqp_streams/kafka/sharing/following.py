"""[io] Follows the state topic: what all homes have committed, in memory, at each node.

Laws: a load answers with all records that were in front of the end that the partition had after the load was
asked for, with all their transactions ended; or it says why it cannot. A topic that was deleted and created
again, and a partition that lost records, are read again from the beginning, and `on_lost` names the buckets:
a home that decided with the old states must fence and load again.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.sharing.followed import Changes, FollowedStates
from amqp_streams.kafka.sharing.reading import Brought, StateReader
from amqp_streams.kafka.sharing.state_topic import REMOVED_MS, STATES, problems

LOOK_S: Final = 2.0
"""The time between two looks at the topic."""
LOAD_MS: Final = 5000
"""How long a load may take."""
ASK_MS: Final = 100
"""The time between two questions where a partition ends."""
FULL_MS: Final = 60_000
"""How often a bucket that is full is read again: compaction, or people, may have removed records."""
FORGOTTEN_MS: Final = REMOVED_MS // 2
"""A node that did not reach Kafka for so long may have missed that keys were removed."""

log = logging.getLogger("amqp_streams.kafka")

Loaded: TypeAlias = Callable[[Mapping[str, bytes] | StorageError], None]
Reached: TypeAlias = Callable[[StorageError | None], None]


@dataclass(slots=True, eq=False)
class _Load:
    """`who`: asks for it. `reached`: called when everything was read, or with the reason why it was not.

    `end`: the number that must be reached; None: it is not known yet, because of `why`.

    `ask_ms`: when to ask again; None: an answer is awaited.
    """

    bucket: int
    who: Hashable
    reached: Reached
    until_ms: int
    end: int | None = None
    ask_ms: int | None = None
    why: str = "no broker answered where it ends"


class StateFollower:
    """All public methods are called on the event loop's thread.

    `found`: the topic. `what` it has, for messages. `on_changes`: gets the records of a bucket in their
    order. `on_lost`: gets buckets whose states in memory were not those of the topic, and why. `boot_ms`:
    reads CLOCK_BOOTTIME.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        administration: Administration,
        found: FoundTopic,
        *,
        weak: bool = False,
        what: str = STATES,
        loop_call: Callable[..., object],
        boot_ms: Callable[[], int],
        on_changes: Callable[[int, Changes], None],
        on_lost: Callable[[frozenset[int], str], None],
        states: FollowedStates | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        self.topic: Final = found.name
        self._buckets: Final = found.settings.partitions
        self.states: Final = states or FollowedStates(self._buckets)
        self._administration: Final = administration
        self._id = found.id
        self._weak: Final = weak
        self._what: Final = what
        self._loop_call: Final = loop_call
        self._boot_ms: Final = boot_ms
        self._on_changes: Final = on_changes
        self._on_lost: Final = on_lost
        self._look_s: Final = look_s
        self._loads: Final[dict[tuple[int, Hashable], _Load]] = {}
        self._full: Final[dict[int, int]] = {}
        """Of full buckets, when they are read again."""
        self._away = ""
        self._missing = 0
        self._wrong: tuple[str, ...] = ()
        self._broken = ""
        self._looked_ms = boot_ms()
        self._stopping: Final = threading.Event()
        self._handled: Final = threading.Event()
        self._reader: Final = StateReader(
            settings,
            self.topic,
            self._buckets,
            loop_call=loop_call,
            on_portion=self._brought,
            on_ended=self._ended,
        )
        self._thread: Final = threading.Thread(target=self._look, name="kafka-state-looks", daemon=True)
        self._thread.start()

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong now, in words; empty if nothing is."""
        full = [
            f"bucket {number} of topic {self.topic!r} is too large: {bucket.full}. Its {self._what} cannot be"
            " used until some are deleted"
            for number, bucket in enumerate(self.states.buckets)
            if bucket.full
        ]
        gone = f"topic {self.topic!r} is missing" if self._missing > 1 else ""
        return (*[each for each in (self._broken, self._away, gone) if each], *self._wrong, *full)

    def load(self, bucket: int, answered: Loaded) -> None:
        """Answer with the states of a bucket: see the module. A load of the same bucket before is dropped."""

        def reached(failure: StorageError | None) -> None:
            answered(dict(self.states.buckets[bucket].values) if failure is None else failure)

        self.reach(bucket, None, reached)

    def reach(self, bucket: int, who: Hashable, reached: Reached) -> None:
        """Like `load`, without a copy of the states. What `who` has asked of the bucket before is dropped."""
        load = self._loads[bucket, who] = _Load(bucket, who, reached, self._boot_ms() + LOAD_MS)
        self._ask(load)

    def tick(self) -> None:
        """Called several times a second: fail loads that take too long, and read full buckets again."""
        now_ms = self._boot_ms()
        for load in list(self._loads.values()):
            if load.until_ms <= now_ms:
                position = self.states.buckets[load.bucket].position
                read = f"it was read up to {position}, and not up to {load.end}"
                why = f"within {LOAD_MS / 1000:g} s, {load.why if load.end is None else read}"
                self._answer(load, StorageError(f"bucket {load.bucket} of topic {self.topic!r}: {why}"))
            elif load.ask_ms is not None and load.ask_ms <= now_ms:
                self._ask(load)
        for bucket in [each for each, again_ms in self._full.items() if again_ms <= now_ms]:
            del self._full[bucket]
            self._reader.again(bucket)

    def close(self) -> None:
        """End the threads. Loads are not answered any more."""
        self._loads.clear()
        self._stopping.set()
        self._handled.set()
        self._reader.close()
        self._thread.join()

    # -- what was read

    def _brought(self, reading: int, portion: Sequence[Brought]) -> None:
        self._reader.taken()
        # Of the topic that was there before.
        if reading != self._reader.reading or self._stopping.is_set():
            return
        for each in portion:
            if each.again:
                self._begin_again(each)
                continue
            self.states.apply(each.bucket, each.changes, each.position)
            if each.changes:
                self._on_changes(each.bucket, each.changes)
            self._note_full(each.bucket)
            for load in [load for load in self._loads.values() if load.bucket == each.bucket]:
                self._answer_if_read(load)

    def _begin_again(self, brought: Brought) -> None:
        number, was_full = brought.bucket, self.states.buckets[brought.bucket].full
        self.states.clear(number)
        if not was_full:
            log.error("kafka_states_lost topic=%s bucket=%s reason=%s", self.topic, number, brought.again)
            self._on_lost(frozenset({number}), brought.again)

    def _note_full(self, bucket: int) -> None:
        if self.states.buckets[bucket].full and bucket not in self._full:
            self._full[bucket] = self._boot_ms() + FULL_MS
            why = self.states.buckets[bucket].full
            log.error("kafka_states_full topic=%s bucket=%s reason=%s", self.topic, bucket, why)

    # -- loads

    def _ask(self, load: _Load) -> None:
        load.ask_ms = None
        asked = self._administration.ask_written_end(Place(self.topic, load.bucket))
        asked.add_done_callback(partial(self._loop_call, self._asked, load))

    def _asked(self, load: _Load, future: "Future[int]") -> None:
        if not self._waits(load):
            return
        try:
            load.end = future.result()
        except StorageError as error:
            # The client learns of a new leader by such an error.
            load.why, load.ask_ms = str(error), self._boot_ms() + ASK_MS
        else:
            self._answer_if_read(load)

    def _waits(self, load: _Load) -> bool:
        return self._loads.get((load.bucket, load.who)) is load

    def _answer_if_read(self, load: _Load) -> None:
        bucket = self.states.buckets[load.bucket]
        # An answer may have begun another load.
        if load.end is None or bucket.position < load.end or not self._waits(load):
            return
        if bucket.full:
            why = f"bucket {load.bucket} of topic {self.topic!r} is too large: {bucket.full}"
            self._answer(load, StorageError(why))
        else:
            self._answer(load, None)

    def _answer(self, load: _Load, failure: StorageError | None) -> None:
        del self._loads[load.bucket, load.who]
        load.reached(failure)

    # -- looks at the topic

    def _look(self) -> None:
        while not self._stopping.wait(self._look_s):
            found: FoundTopic | StorageError | None
            try:
                found = self._administration.describe([self.topic]).get(self.topic)
            except StorageError as error:
                found = error
            except Exception as error:
                # The thread must live: the next look may succeed.
                log.exception("kafka_state_look_failed")
                found = StorageError(f"{type(error).__name__}: {error}")
            self._handled.clear()
            if self._stopping.is_set():
                return
            self._loop_call(self._looked, found)
            # A busy loop must not collect looks.
            self._handled.wait()

    def _looked(self, found: FoundTopic | StorageError | None) -> None:
        self._handled.set()
        if self._stopping.is_set():
            return
        if isinstance(found, StorageError):
            if not self._away:
                log.warning("kafka_state_topic_away topic=%s reason=%s", self.topic, found)
            self._away = str(found)
            return
        self._away = ""
        now_ms, before_ms = self._boot_ms(), self._looked_ms
        self._looked_ms = now_ms
        if found is None:
            # Two looks must agree: a broker may be behind the others.
            self._missing += 1
            if self._missing == 2:
                log.error("kafka_state_topic_missing topic=%s", self.topic)
            return
        self._missing = 0
        self._judge(found)
        if found.id != self._id:
            self._id = found.id
            self._restart(f"topic {self.topic!r} was deleted and created again")
        elif now_ms - before_ms > FORGOTTEN_MS:
            self._restart(f"Kafka was not reached for {(now_ms - before_ms) // 3_600_000} hours")

    def _judge(self, found: FoundTopic) -> None:
        wrong = problems(self.topic, found.settings, self._buckets, weak=self._weak, what=self._what)
        lacks = found.replication
        if lacks.leaderless:
            wrong += (f"{lacks.leaderless} buckets of topic {self.topic!r} have no leader: brokers are lost",)
        if lacks.short:
            why = "have too few replicas in sync, so nothing can be committed: brokers are lost"
            wrong += (f"{lacks.short} buckets of topic {self.topic!r} {why}",)
        if wrong and wrong != self._wrong:
            log.error("kafka_state_topic_unfit reason=%s", "; ".join(wrong))
        self._wrong = wrong

    def _restart(self, why: str) -> None:
        log.error("kafka_states_lost topic=%s reason=%s", self.topic, why)
        self._reader.restart()
        self._full.clear()
        for number in range(self._buckets):
            self.states.clear(number)
        self._on_lost(frozenset(range(self._buckets)), why)

    def _ended(self, why: str) -> None:
        self._broken = why
