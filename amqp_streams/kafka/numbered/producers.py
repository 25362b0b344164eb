"""All idempotent producers of a node: how many, which are given up, and which are forgotten. Pure.

Laws: at most `limit` producers are in use at once, so their threads are bounded. A bucket remembers at most
`remembered` producers and `bytes_max` bytes. A producer with a link at this node is not forgotten. When
nothing is free, the user that has most gives way (`shares.py`), so an abuser makes its own producers end and
be forgotten, and not those of other users.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.numbered.forgetting import Forgetting
from amqp_streams.kafka.numbered.producing import (
    OPEN_MS,
    Effect,
    NumberedProducer,
    Outcome,
    Phase,
)
from amqp_streams.kafka.numbered.records import BUCKETS, ProducerKey, ProducerRecord, decoded, key_of
from amqp_streams.kafka.numbered.shares import Remembered, user_of, users_of

BYTES_MAX: Final = 12 << 20
"""Of the records of a bucket in memory. Beyond it, producers are forgotten, and get no more partitions.

One user has at most half of them: its producers get no more partitions beyond that.
"""
LINGER_MS: Final = 2000
"""A producer without a link stays open for this time, for a client that connects again."""
HELD_MS: Final = 1000
"""A producer that was opened for an attach keeps its place for this time, until the link is attached."""
_OPENING: Final = {Phase.FENCING, Phase.READING, Phase.CLAIMING}
FORGETTING_MAX: Final = 16
"""How many producers are forgotten at once. For those of one user, at most half as many."""
OPENING_MAX: Final = 4
"""How many producers of a user are opened at once, with those that are ending. More wait for their turn.

To open one costs a client of Kafka with its threads and connections, also if no client waits for it any more.
"""
SPARE: Final = 16
"""How many threads a user may have besides `limit`, of producers that are ending."""


class Producers:
    """`node`: the id of this process. `values`: the records of a bucket, the oldest first. `size`: its bytes.

    `ending`: the producers that were given up, and whose threads have not ended. The shell performs `effects`
    in their order.
    """

    def __init__(
        self,
        node: str,
        *,
        limit: int,
        remembered: int,
        values: Callable[[int], Mapping[str, bytes]],
        size: Callable[[int], int] = lambda _bucket: 0,
        ending: Callable[[], Iterable[ProducerKey]] = tuple,
        buckets: int = BUCKETS,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.effects: Final[list[Effect]] = []
        self.producers: Final[dict[ProducerKey, NumberedProducer]] = {}
        self.limit = limit
        self._node: Final = node
        self._remembered: Final = remembered
        self._values: Final = values
        self._size: Final = size
        self._ending: Final = ending
        self._bytes_max: Final = bytes_max
        self._attempts: Final = count()
        self._forgetting: Final[dict[ProducerKey, Forgetting]] = {}
        self._held: Final[dict[ProducerKey, int]] = {}
        """Of producers that were opened for attaches, until when they keep their places."""
        self._queue: Final[dict[ProducerKey, None]] = {}
        """New producers that have not begun to open."""
        self._buckets: Final = buckets
        self._known: Final[defaultdict[int, Remembered]] = defaultdict(
            lambda: Remembered(count_max=remembered, bytes_max=bytes_max)
        )

    @property
    def in_use(self) -> int:
        """How many producers cannot be given up now."""
        return sum(not each.idle for each in self.producers.values())

    # -- from the node

    def open(self, key: ProducerKey, home: int, now_ms: int) -> None:
        """An attach waits for `Opened`. `home`: for a producer that is not known yet.

        Raises:
            PeerError: too many producers are in use, or are ending.
        """
        forgetting = self._forgetting.get(key)
        if forgetting is not None:
            forgetting.end()
            self._proceed(now_ms)
        producer = self.producers.get(key)
        if producer is None:
            self._make_room(user_of(key), now_ms)
            producer = NumberedProducer(key, self._node, home, self.effects, self._attempts, now_ms)
            victim = self._victim(key)
            self.producers[key] = producer
            if victim is not None:
                producer.wait()
                found = self._values(self._bucket(victim))[victim.state]
                made = Forgetting(victim, found, producer, self.effects, self._attempts, now_ms)
                self._forgetting[victim] = made
                return
            self._queue[key] = None
        elif key not in self._queue and all(each.then is not producer for each in self._forgetting.values()):
            producer.open(now_ms)
            self._sweep()
            return
        producer.wait()
        self._proceed(now_ms)

    def cancel(self, key: ProducerKey, index: int) -> None:
        """The attach that waits at this index has left. See `NumberedProducer.cancel`."""
        producer = self.producers.get(key)
        if producer is not None:
            producer.cancel(index)
            self._sweep()

    def answered(self, key: ProducerKey, now_ms: int) -> None:
        """An attach was answered: its link will be attached in a moment, unless its client has left."""
        if key in self.producers:
            self._held[key] = now_ms + HELD_MS

    def attach(self, key: ProducerKey) -> NumberedProducer:
        """A link is attached.

        Raises:
            StorageError: the producer was lost since it was opened.
        """
        producer = self.producers.get(key)
        if producer is None or not producer.opened:
            message = f"producer {key.producer!r} was lost while it was attached: attach again"
            raise StorageError(message)
        self._held.pop(key, None)
        producer.links += 1
        return producer

    def detach(self, producer: NumberedProducer, now_ms: int) -> None:
        """A link has ended."""
        producer.links -= 1
        producer.used_ms = now_ms
        assert producer.links >= 0

    def commit(self, producer: NumberedProducer, now_ms: int) -> None:
        """See `NumberedProducer.commit`."""
        producer.commit(now_ms)
        self._sweep()

    def require_room(self, producer: NumberedProducer, partition: int) -> None:
        """Refuse events for a partition that the record of the producer cannot name any more.

        Raises:
            PeerError: the records of the bucket, or those of its user in it, have too many bytes.
        """
        if partition in producer.record.reached:
            return
        bucket, most = self._bucket(producer.key), self._bytes_max // 2
        if self._known[bucket].bytes_of(user_of(producer.key)) >= most:
            description = f"the numbers of your producers in bucket {bucket} need more than {most} bytes"
        elif self._size(bucket) >= self._bytes_max:
            need = f"need more than {self._bytes_max} bytes"
            description = f"the numbers of all producers in bucket {bucket} {need}"
        else:
            return
        raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"{description}: send to fewer partitions")

    def lose(self, incarnation: str, reason: str) -> None:
        """A log was deleted."""
        for key, producer in tuple(self.producers.items()):
            if key.incarnation == incarnation:
                producer.give_up(reason)
        self._sweep()

    def lose_buckets(self, buckets: frozenset[int], reason: str) -> None:
        """What was read of these buckets is not what Kafka has: read them again."""
        for bucket in buckets:
            self._known.pop(bucket, None)
        for key, producer in tuple(self.producers.items()):
            if self._bucket(key) in buckets:
                producer.give_up(reason)
        self._sweep()

    def give_up(self, reason: str) -> None:
        """The node stops."""
        for producer in tuple(self.producers.values()):
            producer.give_up(reason)
        for forgetting in self._forgetting.values():
            forgetting.end(reason)
        self._forgetting.clear()
        self._sweep()

    def tick(self, now_ms: int) -> None:
        """Called several times a second."""
        for producer in tuple(self.producers.values()):
            producer.tick(now_ms)
            if self._gives_way(producer, now_ms) and now_ms - producer.used_ms >= LINGER_MS:
                producer.leave()
        for forgetting in self._forgetting.values():
            forgetting.tick(now_ms)
        for key in self._queue:
            producer = self.producers[key]
            if now_ms - producer.used_ms >= OPEN_MS:
                producer.give_up(f"it is not ready after {OPEN_MS // 1000} s: others of yours are before it")
        self._proceed(now_ms)

    # -- from Kafka

    def fenced(self, key: ProducerKey, attempt: int, failure: str | None, now_ms: int) -> None:
        """See `NumberedProducer.fenced`."""
        if (producer := self.producers.get(key)) is not None:
            producer.fenced(attempt, failure, now_ms)
        if (forgetting := self._forgetting.get(key)) is not None:
            forgetting.fenced(attempt, failure)
        self._proceed(now_ms)

    def read(self, key: ProducerKey, attempt: int, failure: str | None, now_ms: int) -> None:
        """The bucket was read, or why not."""
        value = self._values(self._bucket(key)).get(key.state)
        if (producer := self.producers.get(key)) is not None:
            producer.read(attempt, failure or self._record(key, value), now_ms)
        if (forgetting := self._forgetting.get(key)) is not None:
            forgetting.read(attempt, failure, value)
        self._proceed(now_ms)

    def ended(self, key: ProducerKey, attempt: int, outcome: Outcome, reason: str, now_ms: int) -> None:
        """See `NumberedProducer.ended`."""
        if (producer := self.producers.get(key)) is not None:
            producer.ended(attempt, outcome, reason, now_ms)
        if (forgetting := self._forgetting.get(key)) is not None:
            forgetting.ended(attempt, outcome, reason)
        self._proceed(now_ms)

    def followed(self, state: str, value: bytes | None) -> None:
        """A record was read from the topic; None: it was removed."""
        key = key_of(state)
        if key is None:
            return
        size = None if value is None else len(state) + len(value)
        self._known[self._bucket(key)].note(user_of(key), state, size)
        producer = self.producers.get(key)
        if producer is not None:
            record = self._record(key, value)
            # Only another node can have written what this version cannot read.
            producer.followed(ProducerRecord("", 0) if isinstance(record, str) else record)
            self._sweep()

    # -- private

    def _bucket(self, key: ProducerKey) -> int:
        return key.bucket % self._buckets

    def _record(self, key: ProducerKey, value: bytes | None) -> ProducerRecord | str | None:
        try:
            return None if value is None else decoded(key.state, value)
        except StorageError as error:
            return str(error)

    def _make_room(self, user: str, now_ms: int) -> None:
        present = [each for each in self.producers.values() if each.phase is not Phase.LEAVING]
        threads = users_of(self.producers)[user] + users_of(self._ending())[user]
        if threads >= self.limit + SPARE:
            text = f"you have {threads} idempotent producers at this node, with those that are still ending"
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"{text}: attach again in a moment")
        if len(present) < self.limit:
            return
        idle = [each for each in present if self._gives_way(each, now_ms)]
        if idle:
            min(idle, key=lambda each: each.used_ms).leave()
        else:
            self._give_way(present, user)
        self._proceed(now_ms)

    def _gives_way(self, producer: NumberedProducer, now_ms: int) -> bool:
        return producer.idle and now_ms >= self._held.get(producer.key, now_ms)

    def _give_way(self, present: Iterable[NumberedProducer], user: str) -> None:
        """Give up a producer of the user that has most, if that is more than this user will have."""
        used = users_of(each.key for each in present)
        heaviest, most = used.most_common(1)[0]
        if most < used[user] + 2:
            text = f"this node has {self.limit} idempotent producers, all in use, and you have"
            remedy = f"{used[user]} of them: attach to another node, detach some, or raise kafka.numbered"
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"{text} {remedy}")
        victim = min(
            (each for each in present if user_of(each.key) == heaviest), key=lambda each: each.used_ms
        )
        text = f"all places for idempotent producers at this node are in use, you have {most} of {self.limit}"
        victim.give_up(f"{text}, and another user needs one: attach to another node, or attach fewer")

    def _victim(self, key: ProducerKey) -> ProducerKey | None:
        """The producer that must be forgotten so that this one fits; None: it fits, or is known.

        Raises:
            PeerError: all that could be forgotten for it are in use here.
        """
        bucket, user = self._bucket(key), user_of(key)
        values = self._values(bucket)
        full = len(values) >= self._remembered or self._size(bucket) >= self._bytes_max
        if key.state in values or not full:
            return None
        own = users_of(each.then.key for each in self._forgetting.values())[user]
        if own < FORGETTING_MAX // 2 and len(self._forgetting) < FORGETTING_MAX:
            for state in self._known[bucket].candidates(user):
                found = key_of(state) if state in values else None
                if found is not None and found not in self.producers and found not in self._forgetting:
                    return found
        text = f"{self._remembered} producers are known (limits.producers), and none can be forgotten now"
        raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"{text}: attach again")

    def _proceed(self, now_ms: int) -> None:
        """Let producers begin for which others were forgotten, and drop those that are over."""
        for key, forgetting in tuple(self._forgetting.items()):
            if not forgetting.over:
                continue
            del self._forgetting[key]
            if forgetting.failure is None:
                # Its client may have left meanwhile.
                if self.producers.get(forgetting.then.key) is forgetting.then:
                    self._queue[forgetting.then.key] = None
            else:
                # Without its name: it may be that of another user.
                forgetting.then.give_up("another producer cannot be forgotten for it now: attach again")
        self._sweep()
        self._begin_next(now_ms)

    def _begin_next(self, now_ms: int) -> None:
        if not self._queue:
            return
        opening = users_of(each.key for each in self.producers.values() if each.phase in _OPENING)
        opening.update(users_of(self._ending()))
        for key in tuple(self._queue):
            if opening[user_of(key)] < OPENING_MAX:
                opening[user_of(key)] += 1
                del self._queue[key]
                self.producers[key].begin(now_ms)

    def _sweep(self) -> None:
        for key in [key for key, each in self.producers.items() if each.phase is Phase.OVER]:
            del self.producers[key]
            self._held.pop(key, None)
            self._queue.pop(key, None)
