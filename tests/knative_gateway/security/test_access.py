"""The user of a request, and the user's rights."""

import pytest

from knative_gateway.errors import ForbiddenError, UnauthenticatedError
from knative_gateway.ports import Route
from knative_gateway.security.access import ANONYMOUS, Gate, Identity, Rule, Verb


class One:
    def __init__(self, token: str, identity: Identity) -> None:
        self.token, self.known = token, identity

    def identity(self, token: str) -> Identity | None:
        return self.known if token == self.token else None


ROUTE = Route("uid", "Broker", "prod", "b", "/broker/prod/b", "broker.prod.b")
ANNA = Identity("anna", frozenset({"team"}))
BEN = Identity("ben")
TOKENS = [One("a", ANNA), One("b", BEN)]


async def test_without_tokens_everybody_may_do_everything() -> None:
    gate = Gate(rules=[Rule(users=["anna"])])
    assert gate.open
    assert gate.identify(None).user == ANONYMOUS
    gate.check(gate.identify("Bearer whatever"), Verb.WRITE, namespace="", what="x")
    await gate.may_send(None, ROUTE)


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Basic YTpi", "a", "Bearer c"])
async def test_with_tokens_no_client_is_admitted_without_one(authorization: str | None) -> None:
    gate = Gate(TOKENS)
    with pytest.raises(UnauthenticatedError):
        gate.identify(authorization)
    with pytest.raises(UnauthenticatedError):
        await gate.may_send(authorization, ROUTE)


async def test_with_tokens_and_without_rules_every_valid_token_is_enough() -> None:
    gate = Gate(TOKENS)
    assert (gate.identify("Bearer a"), gate.identify("bearer  b")) == (ANNA, BEN)
    gate.check(BEN, Verb.WRITE, namespace="", what="x")
    await gate.may_send("Bearer b", ROUTE)


@pytest.mark.parametrize(
    ("rule", "who", "verb", "namespace", "allowed"),
    [
        (Rule(users=["anna"]), ANNA, Verb.WRITE, "", True),
        (Rule(users=["a*"]), ANNA, Verb.WRITE, "x", True),
        (Rule(users=["ben"]), ANNA, Verb.WRITE, "x", False),
        (Rule(groups=["team"]), ANNA, Verb.SEND, "x", True),
        (Rule(groups=["te*"]), BEN, Verb.SEND, "x", False),
        (Rule(), ANNA, Verb.READ, "x", False),
        (Rule(users=["*"], verbs=[Verb.READ]), ANNA, Verb.READ, "x", True),
        (Rule(users=["*"], verbs=[Verb.READ]), ANNA, Verb.SEND, "x", False),
        (Rule(users=["*"], namespaces=["prod-*"]), ANNA, Verb.READ, "prod-1", True),
        (Rule(users=["*"], namespaces=["prod-*"]), ANNA, Verb.READ, "test", False),
        (Rule(users=["*"], namespaces=["prod-*"]), ANNA, Verb.READ, "", False),
        (Rule(users=["*"], namespaces=["prod", "*"]), ANNA, Verb.READ, "", True),
    ],
)
def test_a_rule_allows_what_it_says_and_no_more(
    rule: Rule, who: Identity, verb: Verb, namespace: str, allowed: bool
) -> None:
    gate = Gate(TOKENS, [rule])
    if allowed:
        gate.check(who, verb, namespace=namespace, what="triggers.eventing.knative.dev")
        return
    with pytest.raises(ForbiddenError, match=f'triggers.* is forbidden: User "{who.user}" cannot {verb}'):
        gate.check(who, verb, namespace=namespace, what="triggers.eventing.knative.dev")


async def test_sending_is_a_matter_of_the_address_s_namespace() -> None:
    gate = Gate(TOKENS, [Rule(users=["anna"], verbs=[Verb.SEND], namespaces=["prod"])])
    await gate.may_send("Bearer a", ROUTE)
    with pytest.raises(
        ForbiddenError, match='/broker/prod/b is forbidden: User "ben" cannot send in the namespace "prod"'
    ):
        await gate.may_send("Bearer b", ROUTE)
