"""The namespaces that an object refers to. Pure."""

from typing import Final

from knative_gateway.resources.objects import Object, child, namespace_of, text

REFERENCES: Final = (
    ("spec", "config"),
    ("spec", "subscriber", "ref"),
    ("spec", "reply", "ref"),
    ("spec", "delivery", "deadLetterSink", "ref"),
)
"""The fields of Brokers, Channels, Triggers and Subscriptions that can refer to another namespace."""


def foreign(object_: Object, old: Object | None) -> set[str]:
    """Return the other namespaces that the object refers to and that `old` did not refer to."""
    own = namespace_of(object_)
    found = {text(child(object_, *path), "namespace") for path in REFERENCES}
    before = {text(child(old, *path), "namespace") for path in REFERENCES} if old is not None else set()
    return found - before - {"", own}
