"""A CloudEvent in memory: context attributes and data, independent of a transport. Spec: CloudEvents 1.0, 2
and 3.

Law: `data` and the values of attributes are exactly what the sender gave, whatever mode the event comes in
and goes out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Value = str | bool | int | bytes
"""An attribute's value: String, URI, URI-reference and Timestamp (RFC 3339 text, unchanged) are str; Binary
is bytes.
"""

SPEC_VERSIONS: Final = ("1.0", "0.3")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event. `attributes` has every context attribute by its lower-case name, with `specversion` and
    `datacontenttype`.

    `data` is None for an event without data, which is not the same as empty data. Its type is `datacontenttype`, and
    unknown without one. In 0.3 with `datacontentencoding` base64 it is the encoded text.
    """

    attributes: Mapping[str, Value]
    data: bytes | None = None
