"""A CloudEvent in memory: context attributes and data, independent of a transport.

Spec: CloudEvents 1.0, 2 and 3.

Law: `data` and the values of attributes are exactly those of the sender, in whichever modes the event is
received and sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Value = str | bool | int | bytes
"""The value of an attribute. String, URI, URI-reference and Timestamp (the unchanged text of RFC 3339) are
str; Binary is bytes.
"""

SPEC_VERSIONS: Final = ("1.0", "0.3")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event.

    `attributes`: all context attributes by their lower-case names, including `specversion` and
    `datacontenttype`.

    `data`: None for an event without data, which differs from an event with empty data. `datacontenttype` is
    its type; without that attribute, the type is unknown. In version 0.3 with `datacontentencoding` base64,
    `data` is the encoded text.
    """

    attributes: Mapping[str, Value]
    data: bytes | None = None
