"""Filters of Triggers, each with its meaning in simple Python."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from event_formats.attributes import text_of
from event_formats.event import Value

Attributes = Mapping[str, Value]


class Filter(NamedTuple):
    """Dialect objects of a Trigger, and whether an event matches them."""

    filters: list[Mapping[str, object]]
    matches: Callable[[Attributes], bool]


def _of(attributes: Attributes, name: str) -> str | None:
    return text_of(attributes[name]) if name in attributes else None


def _begins(attributes: Attributes, name: str, text: str) -> bool:
    return (_of(attributes, name) or "").startswith(text)


TEXT_MAX: Final = 65_536
"""Characters of a text that a CESQL function creates.

A longer text is an error, and the event does not match.
"""

FILTERS: Final = (
    Filter([], lambda _: True),
    Filter([{"exact": {"type": "a"}}], lambda event: _of(event, "type") == "a"),
    Filter([{"prefix": {"type": "a"}}], lambda event: _begins(event, "type", "a")),
    Filter([{"suffix": {"type": "b"}}], lambda event: (_of(event, "type") or "").endswith("b")),
    Filter([{"not": {"exact": {"type": "a"}}}], lambda event: _of(event, "type") != "a"),
    Filter(
        [{"any": [{"exact": {"type": "abc"}}, {"exact": {"source": "/b"}}]}],
        lambda event: _of(event, "type") == "abc" or _of(event, "source") == "/b",
    ),
    Filter(
        [{"all": [{"prefix": {"type": "a"}}, {"exact": {"subject": "a"}}]}],
        lambda event: _begins(event, "type", "a") and _of(event, "subject") == "a",
    ),
    Filter(
        [{"exact": {"source": "/a"}}, {"prefix": {"type": "ab"}}],
        lambda event: _of(event, "source") == "/a" and _begins(event, "type", "ab"),
    ),
    Filter([{"cesql": "type = 'a' OR type = 'b'"}], lambda event: _of(event, "type") in ("a", "b")),
    Filter([{"cesql": "EXISTS subject"}], lambda event: "subject" in event),
    Filter([{"cesql": "type LIKE 'ab%'"}], lambda event: _begins(event, "type", "ab")),
    Filter(
        [{"cesql": "source IN ('/a', 'b') AND NOT (type = 'b')"}],
        lambda event: _of(event, "source") in ("/a", "b") and _of(event, "type") != "b",
    ),
    Filter(
        [{"cesql": "LENGTH(CONCAT(subject, subject, subject, subject)) > 100"}],
        lambda event: 100 < 4 * len(_of(event, "subject") or "") <= TEXT_MAX,
    ),
)
NOTHING: Final = Filter([{"exact": {"type": "nothing has this type"}}], lambda _: False)
REPLIES: Final = Filter([{"exact": {"type": "reply"}}], lambda event: _of(event, "type") == "reply")
