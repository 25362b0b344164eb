"""Access reviews, which answer what the user may do: `kubectl auth can-i` and `whoami`. Pure.

Spec: Kubernetes API, SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectReview.
"""

from collections.abc import Mapping
from typing import Final

from knative_gateway.errors import ForbiddenError
from knative_gateway.resources.objects import Object, child, text
from knative_gateway.resources.refusals import bad_request
from knative_gateway.security.access import Gate, Identity, Verb

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
WHO_PATHS: Final = tuple(
    f"/apis/authentication.k8s.io/{version}/selfsubjectreviews" for version in ("v1", "v1beta1", "v1alpha1")
)
PATHS: Final = frozenset({PATH, RULES_PATH, *WHO_PATHS})
_VERBS: Final = {
    Verb.READ: ("get", "list", "watch"),
    Verb.WRITE: ("create", "update", "patch", "delete", "deletecollection"),
}
_READING: Final = frozenset({"get", "list", "watch"})


def review(body: object, gate: Gate, identity: Identity) -> dict[str, object]:
    """Return the review with the answer in its status.

    Raises:
      StatusError: the body is not a SelfSubjectAccessReview (400).
    """
    if not isinstance(body, Mapping) or text(body, "kind") != "SelfSubjectAccessReview":
        raise bad_request("the body must be a SelfSubjectAccessReview")
    spec = child(body, "spec")
    problem = (
        _problem(child(spec, "resourceAttributes"), gate, identity) if "resourceAttributes" in spec else ""
    )
    status = {"allowed": not problem, **({"reason": problem} if problem else {})}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": spec,
        "status": status,
    }


def who(body: object, identity: Identity) -> dict[str, object]:
    """Answer `kubectl auth whoami`: the name and groups of the user. Raises StatusError: the body is another
    kind (400).
    """
    if not isinstance(body, Mapping) or text(body, "kind") != "SelfSubjectReview":
        raise bad_request("the body must be a SelfSubjectReview")
    user = {"username": identity.user, **({"groups": sorted(identity.groups)} if identity.groups else {})}
    return {
        "apiVersion": text(body, "apiVersion"),
        "kind": "SelfSubjectReview",
        "metadata": {},
        "status": {"userInfo": user},
    }


def rules(body: object, gate: Gate, identity: Identity) -> dict[str, object]:
    """Answer `kubectl auth can-i --list`: what the user may do in a namespace.

    Raises:
      StatusError: the body is another kind (400).
    """
    if not isinstance(body, Mapping) or text(body, "kind") != "SelfSubjectRulesReview":
        raise bad_request("the body must be a SelfSubjectRulesReview")
    namespace = text(body, "spec", "namespace")
    allowed = [
        verb
        for wanted, verbs in _VERBS.items()
        for verb in verbs
        if not _refused(gate, identity, wanted, namespace)
    ]
    found = [{"verbs": allowed, "apiGroups": ["*"], "resources": ["*"]}] if allowed else []
    plain = [{"verbs": ["get"], "nonResourceURLs": ["/api", "/apis", "/apis/*", "/openapi/*", "/version"]}]
    status = {"resourceRules": found, "nonResourceRules": plain, "incomplete": False}
    return {
        "apiVersion": text(body, "apiVersion"),
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": child(body, "spec"),
        "status": status,
    }


def answered(path: str, body: object, gate: Gate, identity: Identity) -> dict[str, object]:
    """Return the answer to a POST at one of `PATHS`. Raises StatusError: the body is another kind (400)."""
    if path == RULES_PATH:
        return rules(body, gate, identity)
    return review(body, gate, identity) if path == PATH else who(body, identity)


def _refused(gate: Gate, identity: Identity, verb: Verb, namespace: str) -> bool:
    try:
        gate.check(identity, verb, namespace=namespace, what="")
    except ForbiddenError:
        return True
    return False


def _problem(asked: Object, gate: Gate, identity: Identity) -> str:
    """Return why the request is not allowed; empty if it is allowed.

    Paths that are not resources (discovery, health) are open to every authenticated user.
    """
    verb = text(asked, "verb")
    wanted = [Verb.READ] if verb in _READING else [Verb.READ, Verb.WRITE] if verb == "*" else [Verb.WRITE]
    what = ".".join(part for part in (text(asked, "resource"), text(asked, "group")) if part)
    try:
        for each in wanted:
            gate.check(identity, each, namespace=text(asked, "namespace"), what=what)
    except ForbiddenError as error:
        return str(error)
    return ""
