"""Buckets: the shares of groups and cursors that have one home each. Pure.

Bucket i is partition i of the state topic. What must be decided together is in one bucket: a consumer group
of a log, or a durable link of a log.

Law: the bucket of a group or link is the same on all nodes and in all versions: its number is where its
states are stored.
"""

import json
from hashlib import blake2b
from typing import Final

from amqp_streams.streams.groups.claims import Claim

BUCKETS: Final = 16


def bucket_of(incarnation: str, claim: Claim | None, container: str, link: str) -> int:
    """The bucket of a link: by its group if it has a claim, else by its container and name."""
    # JSON, because no separator is safe in names with any character.
    names = [incarnation, claim.group] if claim is not None else [incarnation, container, link]
    digest = blake2b(json.dumps(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % BUCKETS
