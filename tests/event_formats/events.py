"""Events for properties: every attribute, value and data that the standard permits."""

import json

from hypothesis import strategies as st

from event_formats.event import CloudEvent

TEXTS = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x10FFFF, exclude_categories=("Cs", "Cc", "Cn")),
    max_size=20,
)
WORDS = TEXTS.filter(bool)
OWN = {
    "id", "source", "type", "specversion", "subject", "time", "dataschema", "schemaurl", "datacontenttype",
    "datacontentencoding", "data",
}  # fmt: skip
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20).filter(
    lambda name: name not in OWN
)
SOURCES = st.one_of(
    WORDS.filter(lambda text: ":" not in text),
    WORDS.map("urn:x:{}".format),
    st.just("https://example.com/a?b=c#d"),
)
TIMES = st.datetimes(timezones=st.just(None)).map(lambda moment: moment.isoformat() + "Z")
INTEGERS = st.integers(-(1 << 31), (1 << 31) - 1)
VALUES = st.one_of(TEXTS, st.booleans(), INTEGERS, st.binary(max_size=20))
OPTIONAL = {"subject": WORDS, "time": TIMES, "dataschema": WORDS.map("urn:{}".format)}
TYPES = st.sampled_from(
    ["text/plain", "application/octet-stream", "application/json", "application/problem+json; charset=utf-8"]
)
ANNOUNCING = st.sampled_from(
    [
        "application/cloudevents",
        "application/cloudevents+json",
        "Application/CloudEvents+JSON; charset=utf-8",
        "application/cloudevents+json; charset=utf-16",
        "application/cloudevents+avro",
        "application/cloudevents-batch+json",
        "application/cloudeventsfoo",
    ]
)
"""Types of data that announce an event. Binary mode cannot carry them."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
"""Values; `st.builds(json.dumps, JSON)` are texts."""


@st.composite
def events(
    draw: st.DrawFn,
    values: st.SearchStrategy[str | bool | int | bytes] = VALUES,
    types: st.SearchStrategy[str] = TYPES,
) -> CloudEvent:
    """Any event of 1.0, data and type independent of each other."""
    attributes = {"specversion": "1.0", "id": draw(WORDS), "source": draw(SOURCES), "type": draw(WORDS)}
    attributes |= draw(st.fixed_dictionaries({}, optional=OPTIONAL))
    extensions = draw(st.dictionaries(NAMES, values, max_size=4))
    if draw(st.booleans()):
        attributes["datacontenttype"] = draw(types)
    data = draw(
        st.one_of(st.none(), st.binary(max_size=300), JSON.map(lambda value: json.dumps(value).encode()))
    )
    return CloudEvent({**attributes, **extensions}, data)
