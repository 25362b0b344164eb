"""A CloudEvent in memory: context attributes and data, nothing of any transport. Spec: CloudEvents 1.0, sections 2 and 3.

Laws: `data` is byte for byte what the sender gave, whatever mode it came in and goes out; attributes keep the values that they came with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Value = str | bool | int | bytes
"""An attribute's value: String, URI, URI-reference and Timestamp (RFC 3339 text, as it came) are str; Binary is bytes."""

SPEC_VERSIONS: Final = ("1.0", "0.3")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event. `attributes` has every context attribute by its lower-case name, `specversion` included, `datacontenttype` too.

    `data` is None when there is none, which is not the same as empty. Its type is `datacontenttype`, and unknown without one. In 0.3
    with `datacontentencoding` base64 it is the encoded text.
    """

    attributes: Mapping[str, Value]
    data: bytes | None = None
