"""The record of an idempotent producer in the topic of numbers: its key, its value, its partition. Pure.

Each partition of the topic is a bucket of producers. The topic is compacted: a record without a value removes
its key.

Laws: the key, the bucket and the transactional id of a producer are the same on all nodes and in all
versions. A record of a later version is an error, not a guess.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from amqp_streams.errors import StorageError

BUCKETS: Final = 16
"""How many partitions the topic has."""
VERSION: Final = 1
_PREFIX: Final = "number/"


class ProducerKey(NamedTuple):
    """A producer of a log. `incarnation`: of the log. `producer`: see `stored_id`."""

    incarnation: str
    producer: str

    @property
    def state(self) -> str:
        """Its key in the topic."""
        # With its length: the ids of topics, and the names of producers, may have any of the separators.
        return f"{_PREFIX}{len(self.incarnation)}/{self.incarnation}/{self.producer}"

    @property
    def bucket(self) -> int:
        """Its partition of the topic."""
        return int.from_bytes(self._digest()[:8]) % BUCKETS

    def transactional_id(self, prefix: str) -> str:
        """Its transactional id at nodes with this prefix."""
        return f"{prefix}.number.{self._digest().hex()}"

    def _digest(self) -> bytes:
        # JSON, because no separator is safe in names with any character.
        return blake2b(json.dumps(list(self)).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """What is known of a producer.

    `node`: the id of the process that has it, or had it last. `home`: the partition of its events without a
    hint. `reached`: its highest number in each partition in which it has stored events.
    """

    node: str
    home: int
    reached: Mapping[int, int] = field(default_factory=dict)

    def covers(self, highest: Mapping[int, int]) -> bool:
        """Whether events with these numbers, by partition, are stored."""
        return all(self.reached.get(index, -1) >= number for index, number in highest.items())


def key_of(state: str) -> ProducerKey | None:
    """The producer with this key in the topic; None: it is not the key of a producer."""
    length, _, rest = state.removeprefix(_PREFIX).partition("/")
    if not (state.startswith(_PREFIX) and length.isascii() and length.isdecimal()):
        return None
    incarnation, separator, producer = rest[: int(length)], rest[int(length) :][:1], rest[int(length) + 1 :]
    found = ProducerKey(incarnation, producer)
    return found if separator == "/" and producer and found.state == state else None


def encoded(record: ProducerRecord) -> bytes:
    """The value of a record."""
    reached = {str(index): number for index, number in record.reached.items()}
    fields = {"v": VERSION, "node": record.node, "home": record.home, "reached": reached}
    return json.dumps(fields, separators=(",", ":")).encode()


def decoded(key: str, value: bytes) -> ProducerRecord:
    """Decode the value of a record.

    Raises:
        StorageError: a later version wrote it.
    """
    try:
        fields = json.loads(value)
        if fields["v"] != VERSION:
            message = f"version {fields['v']!r}"
            raise ValueError(message)
        reached = {int(index): int(number) for index, number in fields["reached"].items()}
        return ProducerRecord(str(fields["node"]), int(fields["home"]), reached)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"state {key!r} is not a producer that this version can read ({error}): start the version that"
            " wrote it, or a later one"
        )
        raise StorageError(message) from error
