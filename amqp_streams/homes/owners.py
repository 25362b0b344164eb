"""Which link was granted a partition last: the record that decides who may continue under a new home. Pure.

The record is durable before the link is granted. So a link of a node that a home could not reach, and whose
partition another link has got since, is recognised by each later home.

Key: `owner/`, the log's incarnation, the partition and the group; for a durable link without a group, the id
of its cursor with `-` in the place of the partition. Value: JSON with the id of the node's process and the
number of the link, which no other link ever has.
"""

import json
import re
from typing import Final

from amqp_streams.streams.consuming.cursors import link_key
from amqp_streams.streams.groups.claims import Wanted

PREFIX: Final = "owner/"
VERSION: Final = 1
_KEY: Final = re.compile(rf"{PREFIX}.+?/[0-9]+/(.*)", re.DOTALL)


def owner_key(wanted: Wanted, partition: int | None) -> str:
    """The key of the record."""
    if wanted.claim is None:
        own = link_key(wanted.incarnation, wanted.container, wanted.link).id
        return f"{PREFIX}{wanted.incarnation}/-/{own}"
    return f"{PREFIX}{wanted.incarnation}/{partition}/{wanted.claim.group}"


def encoded(node: str, number: int) -> bytes:
    """The value of the record. Two links have the same value only if they are the same link."""
    return json.dumps({"v": VERSION, "node": node, "link": number}, separators=(",", ":")).encode()


def owner_group(key: str) -> str | None:
    """The group in the key of a record; None: it is of a link without a group."""
    # An incarnation may contain a slash: the id of a topic of Kafka is base64.
    found = _KEY.fullmatch(key)
    return None if found is None else found[1]
