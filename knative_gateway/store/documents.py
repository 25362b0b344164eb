"""Objects as the text that is stored. [io]"""

import json
from collections.abc import Mapping


def written(object_: Mapping[str, object]) -> str:
    """JSON in ASCII: both databases take it, whatever characters the values have."""
    return json.dumps(object_, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def read(document: str) -> dict[str, object]:
    """What was written."""
    value = json.loads(document)
    assert isinstance(value, dict)
    return value
