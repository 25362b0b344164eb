"""`kubectl auth can-i`: what is told beforehand is what happens."""

import pytest

from knative_gateway.access import Gate, Identity, Rule, Verb
from knative_gateway.api import Api
from knative_gateway.api.reviews import PATH, review
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.api.client import call


class Known:
    def identity(self, token: str) -> Identity | None:
        return Identity(token)


GATE = Gate([Known()], [Rule(users=["reader"], verbs=[Verb.READ]), Rule(users=["writer"], namespaces=["default"])])


def asked(verb: str, namespace: str = "default") -> dict[str, object]:
    attributes = {"verb": verb, "namespace": namespace, "group": "eventing.knative.dev", "resource": "triggers"}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}


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


def test_what_is_no_resource_is_open_to_all() -> None:
    body = {"kind": "SelfSubjectAccessReview", "spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
    assert review(body, GATE, Identity("nobody"))["status"] == {"allowed": True}


def test_another_question_is_refused() -> None:
    with pytest.raises(StatusError):
        review({"kind": "SubjectAccessReview"}, GATE, Identity("reader"))


async def test_it_is_asked_by_post(api: Api) -> None:
    answer = await call(api, "POST", PATH, asked("create"))
    assert (answer.code, answer.json["status"]) == (201, {"allowed": True})
    assert (await call(api, "GET", PATH)).code == 404
