"""Objects as stored text.

Large ones are encoded and decoded in pieces: `resources.documents.large`.
"""

import json
from collections.abc import Mapping

from knative_gateway.resources.documents.large import INLINE_CHARACTERS, json_pieces, read_large


def written(object_: Mapping[str, object]) -> str:
    """Return JSON in ASCII. Both databases accept it for all values: PostgreSQL, for example, refuses NUL in
    a text.
    """
    return "".join(json_pieces(object_))


def read(document: str) -> dict[str, object]:
    """Return the object of a text from `written`."""
    value = json.loads(document) if len(document) <= INLINE_CHARACTERS else read_large(document)
    assert isinstance(value, dict)
    return value
