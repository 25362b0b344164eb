"""What goes when something else went: objects of a Namespace, objects whose owners are all gone. Spec: Kubernetes, "Garbage Collection".

Only what was seen to go takes others with it: an object that came with owners of another cluster stays.
"""

from collections.abc import Mapping

from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object, entries, name_of, text, uid_of


def left_behind(objects: Mapping[Key, Object], key: Key, gone: Object) -> list[Key]:
    """The objects that go with one that is gone. `objects`: those that are still there."""
    if (key.group, key.kind) == ("", "Namespace"):
        return [each for each in objects if each.namespace == name_of(gone)]
    uid = uid_of(gone)
    there = {uid_of(object_) for object_ in objects.values()}
    return [each for each, object_ in objects.items() if uid in (owners := _owners(object_)) and there.isdisjoint(owners)]


def _owners(object_: Object) -> list[str]:
    return [text(each, "uid") for each in entries(object_, "metadata", "ownerReferences")]
