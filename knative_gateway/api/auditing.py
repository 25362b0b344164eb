"""Notes what users change: in the log of the gateway, and for people who ask it. [io]"""

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from knative_gateway.resources.kinds import Kind
from knative_gateway.resources.objects import Object, name_of, namespace_of
from knative_gateway.security.access import ANONYMOUS
from service_parts.health.changes import Changes

TEXT_MAX: Final = 128
"""Characters of a text that is kept."""

_log: Final = structlog.get_logger("knative_gateway.audit")


class Audit:
    """`changes`: where people see the latest ones; None: only the log has them."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._changes: Final = changes

    def note(
        self,
        user: str,
        what: str,
        kind: Kind,
        where: tuple[str, str],
        details: Mapping[str, str] | None = None,
    ) -> None:
        """Note a change. `what`: the verb of Kubernetes, or the name of an action. `where`: namespace and
        name.
        """
        namespace, name = where
        more = {"namespace": namespace} if namespace else {}
        _log.info("changed", user=user, verb=what, kind=kind.kind, **more, name=name, **(details or {}))
        if self._changes is not None:
            shown = name if not namespace else f"{namespace}/{name}"
            known = None if user == ANONYMOUS else user[:TEXT_MAX]
            self._changes.add(known, what.upper(), kind.kind, shown[:TEXT_MAX], details)

    def note_all(self, user: str, kind: Kind, objects: Sequence[Object]) -> None:
        """Note the deletion of many objects of one namespace as one change."""
        if len(objects) == 1:
            self.note(user, "delete", kind, place_of(objects[0]))
        elif objects:
            # Each object would push one of the few changes that are kept out of the list.
            where = namespace_of(objects[0]), "*"
            self.note(user, "deletecollection", kind, where, {"objects": str(len(objects))})


def place_of(object_: Object) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return namespace_of(object_), name_of(object_)
