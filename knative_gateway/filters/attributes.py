"""Attributes of an event as text, for filters.

An attribute that is not a String is compared in its canonical text form, so that the result does not depend
on the transport: over HTTP all attributes are texts, over AMQP they have types. `schemaurl` of CloudEvents
0.3 and `dataschema` are the same attribute. `datamediatype` is the content type without its parameters.

Spec: Knative Eventing, TriggerFilter.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from knative_gateway.filters.cesql.casts import canonical

Attributes: TypeAlias = Mapping[str, object]
Lookup: TypeAlias = Callable[[Attributes], str | None]

_MEDIA_TYPE_MAX: Final = 1024
"""Characters of a content type that are examined. RFC 6838, 4.2, allows 127 each for type and subtype."""


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
"""Attributes whose text is computed."""


def lookup(name: str) -> Lookup:
    """Return a function that returns the text of the attribute `name` in an event, or None."""
    if name in DERIVED:
        return DERIVED[name]

    def text(attributes: Attributes) -> str | None:
        value = attributes.get(name)
        if value is None or value.__class__ is str:
            return value
        return canonical(value)

    return text
