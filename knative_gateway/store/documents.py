"""Objects as stored text. [io]"""

import json
from collections.abc import Mapping


def written(object_: Mapping[str, object]) -> str:
    """JSON in ASCII: both databases accept it, whatever characters the values have."""
    return json.dumps(object_, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def read(document: str) -> dict[str, object]:
    """The object of a text that `written` made."""
    value = json.loads(document)
    assert isinstance(value, dict)
    return value
