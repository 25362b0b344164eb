"""The claimed epochs in the node's states. Spec: Event Streams 4.5.2.

Law: a recorded epoch is never lower than one that a peer was answered for the same partition and group
(`ownership.py` ensures it). It is removed only with the group or the log.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from amqp_streams.errors import StorageError

PREFIX: Final = "epoch/"
"""A key is this prefix, the log's incarnation, the partition's number and the group's name, with slashes."""
VERSION: Final = 1
_KEY: Final = re.compile(rf"{PREFIX}(.+?)/[0-9]+/(.*)", re.DOTALL)


def epochs_prefix(incarnation: str) -> str:
    """The prefix of the keys of all epochs of a log."""
    return f"{PREFIX}{incarnation}/"


def epoch_change(incarnation: str, group: str, partition: int, epoch: int) -> dict[str, bytes]:
    """The change of the states that records this epoch."""
    value = json.dumps({"v": VERSION, "epoch": epoch}, separators=(",", ":")).encode()
    return {f"{epochs_prefix(incarnation)}{partition}/{group}": value}


def read_epochs(incarnation: str, items: Iterable[tuple[str, bytes]]) -> Mapping[tuple[str, int], int]:
    """The recorded epochs of a log by group and partition.

    Raises:
        StorageError: a later version wrote them.
    """
    found: dict[tuple[str, int], int] = {}
    for key, value in items:
        partition, _, group = key.removeprefix(epochs_prefix(incarnation)).partition("/")
        found[group, int(partition)] = _decoded(key, value)
    return found


def epoch_group(key: str) -> tuple[str, str]:
    """The incarnation of the log and the name of the group in the key of an epoch."""
    # An incarnation may contain a slash: the id of a topic of Kafka is base64.
    found = _KEY.fullmatch(key)
    assert found is not None, "it is the key of an epoch"
    return found[1], found[2]


def _decoded(key: str, value: bytes) -> int:
    try:
        fields = json.loads(value)
        if fields["v"] != VERSION:
            message = f"version {fields['v']!r}"
            raise ValueError(message)
        return int(fields["epoch"])
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"state {key!r} is not an epoch that this version can read ({error}): start the version that"
            " wrote it, or a later one"
        )
        raise StorageError(message) from error
