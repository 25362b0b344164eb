"""Objects that the tests of the resources start from."""

from typing import Final

from knative_gateway.resources.kinds import BUILT_IN, Kind
from knative_gateway.resources.objects import Object

NOW_MS: Final = 1_700_000_000_000
NOW: Final = "2023-11-14T22:13:20Z"


def kind(name: str) -> Kind:
    """Return a built-in kind by its name."""
    (found,) = (each for each in BUILT_IN.kinds if each.kind == name)
    return found


def made(
    name: str, spec: Object | None = None, *, called: str = "x", **metadata: object
) -> dict[str, object]:
    """An object of a built-in kind as a client would send it."""
    object_: dict[str, object] = {
        "apiVersion": kind(name).api_version,
        "kind": name,
        "metadata": {"name": called, **metadata},
    }
    return object_ if spec is None else {**object_, "spec": spec}


TRIGGER: Final = made("Trigger", {"broker": "b", "subscriber": {"uri": "http://there/"}})
SUBSCRIPTION: Final = made(
    "Subscription",
    {
        "channel": {"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "c"},
        "subscriber": {"uri": "http://there/"},
    },
)
