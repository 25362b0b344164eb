"""What somebody may, asked beforehand: `kubectl auth can-i`. Pure. Spec: Kubernetes API, SelfSubjectAccessReview."""

from collections.abc import Mapping
from typing import Final

from knative_gateway.access import Gate, Identity, Verb
from knative_gateway.errors import ForbiddenError
from knative_gateway.resources.objects import Object, child, text
from knative_gateway.resources.refusals import bad_request

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_READING: Final = frozenset({"get", "list", "watch"})


def review(body: object, gate: Gate, identity: Identity) -> dict[str, object]:
    """The question, with the answer in its status.

    Raises:
        StatusError: it is no such question (400).
    """
    if not isinstance(body, Mapping) or text(body, "kind") != "SelfSubjectAccessReview":
        raise bad_request("the body must be a SelfSubjectAccessReview")
    spec = child(body, "spec")
    problem = _problem(child(spec, "resourceAttributes"), gate, identity) if "resourceAttributes" in spec else ""
    status = {"allowed": not problem, **({"reason": problem} if problem else {})}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": spec, "status": status}


def _problem(asked: Object, gate: Gate, identity: Identity) -> str:
    """Why not; empty: they may. What is no resource (discovery, health) is open to all who are known."""
    verb = text(asked, "verb")
    wanted = [Verb.READ] if verb in _READING else [Verb.READ, Verb.WRITE] if verb == "*" else [Verb.WRITE]
    what = ".".join(part for part in (text(asked, "resource"), text(asked, "group")) if part)
    try:
        for each in wanted:
            gate.check(identity, each, namespace=text(asked, "namespace"), what=what)
    except ForbiddenError as error:
        return str(error)
    return ""
