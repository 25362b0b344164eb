"""`kubectl auth can-i`: the answer is the same as the result of the operation."""

import pytest

from knative_gateway.api import Api, reviews
from knative_gateway.api.reviews import PATH, review
from knative_gateway.resources.objects import entries
from knative_gateway.resources.refusals import StatusError
from knative_gateway.security.access import Gate, Identity, Rule, Verb
from tests.knative_gateway.api.client import call


class Known:
    def identity(self, token: str) -> Identity | None:
        return Identity(token)


GATE = Gate(
    [Known()], [Rule(users=["reader"], verbs=[Verb.READ]), Rule(users=["writer"], namespaces=["default"])]
)


def asked(verb: str, namespace: str = "default") -> dict[str, object]:
    attributes = {
        "verb": verb,
        "namespace": namespace,
        "group": "eventing.knative.dev",
        "resource": "triggers",
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


@pytest.mark.parametrize(
    ("who", "verb", "namespace", "allowed"),
    [
        ("reader", "list", "default", True),
        ("reader", "watch", "", True),
        ("reader", "create", "default", False),
        ("reader", "*", "default", False),
        ("writer", "*", "default", True),
        ("writer", "delete", "default", True),
        ("writer", "get", "", False),
        ("nobody", "get", "default", False),
    ],
)
def test_the_answer_is_that_of_the_rules(who: str, verb: str, namespace: str, allowed: bool) -> None:
    status = review(asked(verb, namespace), GATE, Identity(who))["status"]
    assert isinstance(status, dict)
    assert status["allowed"] is allowed
    assert ("triggers.eventing.knative.dev is forbidden" in status.get("reason", "")) is not allowed


def test_a_path_that_is_not_a_resource_is_open_to_all() -> None:
    body = {
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}},
    }
    assert review(body, GATE, Identity("nobody"))["status"] == {"allowed": True}


def test_another_question_is_refused() -> None:
    with pytest.raises(StatusError):
        review({"kind": "SubjectAccessReview"}, GATE, Identity("reader"))


async def test_it_is_asked_by_post(api: Api) -> None:
    answer = await call(api, "POST", PATH, asked("create"))
    assert (answer.code, answer.json["status"]) == (201, {"allowed": True})
    assert (await call(api, "GET", PATH)).code == 404


def test_the_user_of_a_client_can_be_asked_for() -> None:
    found = reviews.who(
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        Identity("me", frozenset({"b", "a"})),
    )
    assert found["status"] == {"userInfo": {"username": "me", "groups": ["a", "b"]}}
    with pytest.raises(StatusError):
        reviews.who({"kind": "Other"}, Identity("me"))


@pytest.mark.parametrize(
    ("user", "namespace", "verbs"),
    [("reader", "default", 3), ("writer", "default", 8), ("writer", "other", 0), ("nobody", "default", 0)],
)
def test_the_rights_of_a_user_in_a_namespace_can_be_listed(user: str, namespace: str, verbs: int) -> None:
    asked = {"kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    found = reviews.rules(asked, GATE, Identity(user))
    assert sum(len(entries(each, "verbs")) for each in entries(found, "status", "resourceRules")) == verbs


def test_each_question_has_its_path() -> None:
    for path, kind in (
        (reviews.PATH, "SelfSubjectAccessReview"),
        (reviews.RULES_PATH, "SelfSubjectRulesReview"),
        (reviews.WHO_PATHS[0], "SelfSubjectReview"),
    ):
        assert reviews.answered(path, {"kind": kind, "spec": {}}, GATE, Identity("reader"))["kind"] == kind
