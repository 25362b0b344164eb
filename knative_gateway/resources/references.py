"""Which namespaces an object refers to. Pure."""

from typing import Final

from knative_gateway.resources.objects import Object, child, namespace_of, text

REFERENCES: Final = (
    ("spec", "config"),
    ("spec", "subscriber", "ref"),
    ("spec", "reply", "ref"),
    ("spec", "delivery", "deadLetterSink", "ref"),
)
"""Of Brokers, Channels, Triggers and Subscriptions, to objects that may be in another namespace."""


def foreign(object_: Object, old: Object | None) -> set[str]:
    """The namespaces of others whose objects it refers to, where `old` did not."""
    own = namespace_of(object_)
    found = {text(child(object_, *path), "namespace") for path in REFERENCES}
    before = {text(child(old, *path), "namespace") for path in REFERENCES} if old is not None else set()
    return found - before - {"", own}
