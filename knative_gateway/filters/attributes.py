"""What filters read of an event: attributes by name, as text. Spec: Knative Eventing, TriggerFilter.

Laws: an attribute that is not a String counts as the text that CloudEvents gives it, so that an event matches
alike whether it came over HTTP, where all are text, or over AMQP. 0.3's `schemaurl` and `dataschema` are one;
`datamediatype` is the content type less its parameters.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from knative_gateway.filters.cesql.casts import canonical

Attributes: TypeAlias = Mapping[str, object]
Lookup: TypeAlias = Callable[[Attributes], str | None]

_MEDIA_TYPE_MAX: Final = 1024
"""Characters of a content type that are looked at.

Spec: RFC 6838, 4.2: type and subtype have 127 each at most.
"""


def _schema(attributes: Attributes) -> str | None:
    value = attributes.get("dataschema", attributes.get("schemaurl"))
    return None if value is None else canonical(value)


def _media_type(attributes: Attributes) -> str | None:
    value = attributes.get("datacontenttype")
    return None if value is None else canonical(value)[:_MEDIA_TYPE_MAX].split(";", 1)[0].strip().lower()


DERIVED: Final[Mapping[str, Lookup]] = {
    "dataschema": _schema,
    "schemaurl": _schema,
    "datamediatype": _media_type,
}
"""Names that are not simply looked up."""


def lookup(name: str) -> Lookup:
    """What gives the attribute's text; None where the event has none."""
    if name in DERIVED:
        return DERIVED[name]

    def text(attributes: Attributes) -> str | None:
        value = attributes.get(name)
        if value is None or value.__class__ is str:
            return value
        return canonical(value)

    return text
