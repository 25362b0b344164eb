"""The partition of a key, as Kafka's Java clients choose it. Pure.

Events with a key in a topic that other programs use must be in the partition where those programs put the
key: murmur2 of its bytes (32 bits, the seed of `org.apache.kafka.common.utils.Utils`), without the sign,
modulo the partitions. Topics of our own logs keep our own hash (`amqp_streams/streams/routing.py`).
"""

from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash of a key: 32 bits, unsigned."""
    mixed = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        mixed = (mixed * _FACTOR & _MASK) ^ word
    if rest := key[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    mixed = (mixed ^ mixed >> 13) * _FACTOR & _MASK
    return mixed ^ mixed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition in which Kafka's Java clients put this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
