"""The record of a bucket's home in the state topic: a key and JSON. Pure.

Partition i of the topic has the states of bucket i: this record, and the epochs and cursors in the formats of
a data directory (`streams/groups/epochs.py`, `streams/consuming/cursors.py`). The topic is compacted; a
record without a value removes its key.

Laws: each home writes a greater term than every home before it. A record of a later version is an error, not
a guess.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from amqp_streams.errors import StorageError

KEY: Final = "home"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class HomeRecord:
    """The home of a bucket.

    `term`: counts the homes of the bucket. `node`: the id of the process. `address`: where other nodes reach
    it. `let_go`: it has ended in order, and no grant of it is in force.
    """

    term: int
    node: str
    address: str
    let_go: bool = False


def encoded(record: HomeRecord) -> bytes:
    """The value of the record."""
    return json.dumps({"v": VERSION, **asdict(record)}, separators=(",", ":")).encode()


def decoded(value: bytes) -> HomeRecord:
    """Decode the value of the record.

    Raises:
        StorageError: a later version wrote it.
    """
    try:
        fields = json.loads(value)
        if fields["v"] != VERSION:
            message = f"version {fields['v']!r}"
            raise ValueError(message)
        return HomeRecord(
            int(fields["term"]), str(fields["node"]), str(fields["address"]), bool(fields["let_go"])
        )
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"state {KEY!r} is not a home that this version can read ({error}): start the version that wrote"
            " it, or a later one"
        )
        raise StorageError(message) from error
