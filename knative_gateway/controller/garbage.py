"""Which objects are removed with another object: the objects of a Namespace, and objects whose owners are all
deleted. Pure.

Only a deletion that this process has seen removes dependents. So an object that was created with owners of
another cluster is not removed.

Spec: Kubernetes, "Garbage Collection".
"""

from collections.abc import Sequence
from typing import Final

from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object, entries, name_of, text, uid_of


class Belongings:
    """Objects by namespace and by owner. The dependents of a deleted object are found without a search."""

    def __init__(self) -> None:
        self._uids: Final[dict[str, Key]] = {}
        self._known: Final[dict[Key, tuple[str, Sequence[str]]]] = {}
        self._owned: Final[dict[str, dict[Key, None]]] = {}
        self._in_namespace: Final[dict[str, dict[Key, None]]] = {}

    def note(self, key: Key, object_: Object | None) -> None:
        """Record an object that was created or changed, or deleted (None)."""
        before = self._known.pop(key, None)
        if before is not None:
            uid, owners = before
            if self._uids.get(uid) == key:
                del self._uids[uid]
            for owner in owners:
                _remove(self._owned, owner, key)
        if object_ is None:
            _remove(self._in_namespace, key.namespace, key)
            return
        uid, owners = (
            uid_of(object_),
            [text(each, "uid") for each in entries(object_, "metadata", "ownerReferences")],
        )
        self._known[key] = uid, owners
        self._uids[uid] = key
        for owner in owners:
            self._owned.setdefault(owner, {})[key] = None
        self._in_namespace.setdefault(key.namespace, {})[key] = None

    def left_behind(self, key: Key, gone: Object) -> list[Key]:
        """Return the objects to remove after an object was deleted.

        After a namespace: all objects in it. After another object: the objects whose owners are all deleted.
        """
        if (key.group, key.kind) == ("", "Namespace"):
            return list(self._in_namespace.get(name_of(gone), ()))
        owned = self._owned.get(uid_of(gone), {})
        return [each for each in owned if not any(owner in self._uids for owner in self._known[each][1])]


def _remove(index: dict[str, dict[Key, None]], name: str, key: Key) -> None:
    keys = index.get(name)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[name]
