"""Which results depend on which objects. A change of an object can change only these results. Pure."""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from knative_gateway.addressing import Lookup
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object

Node = tuple[str, Key]
"""A stage of reconciling, and the object whose result is computed in this stage."""


class Dependencies:
    """Edges from objects to nodes. Each computation of a result replaces the edges of its node."""

    def __init__(self) -> None:
        self._looked_up: Final[dict[Node, set[Key]]] = {}
        self._nodes: Final[defaultdict[Key, dict[Node, None]]] = defaultdict(dict)

    def of(self, key: Key) -> Collection[Node]:
        """Return the nodes that looked up this object, whether it existed or not."""
        return list(self._nodes[key]) if key in self._nodes else ()

    def recorded(self, node: Node, lookup: Lookup) -> Lookup:
        """Return a lookup for the computation of `node`. Objects that are looked up become dependencies of
        the node.
        """
        self.forget(node)
        keys = self._looked_up.setdefault(node, set())

        def looked_up(key: Key) -> Object | None:
            keys.add(key)
            self._nodes[key][node] = None
            return lookup(key)

        return looked_up

    def forget(self, node: Node) -> None:
        """Remove all dependencies of a node."""
        for key in self._looked_up.pop(node, ()):
            nodes = self._nodes[key]
            nodes.pop(node, None)
            if not nodes:
                del self._nodes[key]

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))
