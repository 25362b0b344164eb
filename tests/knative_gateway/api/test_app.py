"""Access rights, and the form of every error."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from starlette.applications import Starlette

from knative_gateway.api import Api
from knative_gateway.errors import UnavailableError
from knative_gateway.security.access import Gate, Identity, Rule, Verb
from knative_gateway.store import Store
from tests.knative_gateway.api.client import TRIGGERS, Answer, call, trigger


class Known:
    """Tokens that are the names of their owners."""

    def identity(self, token: str) -> Identity | None:
        return (
            Identity(token, frozenset({"team"} if token == "member" else ()))
            if token in {"admin", "member", "reader"}
            else None
        )


@pytest.fixture
async def guarded(store: Store) -> AsyncIterator[Api]:
    rules = [
        Rule(users=["admin"]),
        Rule(users=["reader"], verbs=[Verb.READ]),
        Rule(groups=["team"], verbs=[Verb.READ, Verb.WRITE], namespaces=["default"]),
    ]
    api = Api(store.resources, store.cursors, gate=Gate([Known()], rules))
    await api.start()
    yield api
    await api.close()


async def ask(api: Api, who: str, method: str, path: str, body: object = None) -> Answer:
    return await call(api, method, path, body, headers={"authorization": f"Bearer {who}"} if who else {})


async def test_unauthenticated_and_unknown_users_are_unauthorized_everywhere(guarded: Api) -> None:
    for who in ("", "stranger"):
        for path in ("/version", "/apis", TRIGGERS, "/nowhere"):
            answer = await ask(guarded, who, "GET", path)
            assert (answer.code, answer.json["reason"], answer.header("www-authenticate")) == (
                401,
                "Unauthorized",
                "Bearer",
            ), path


async def test_rules_give_rights_to_users_on_logs(guarded: Api) -> None:
    everywhere = "/apis/eventing.knative.dev/v1/triggers"
    elsewhere = TRIGGERS.replace("default", "elsewhere")
    allowed: Iterator[tuple[str, str, str, int]] = iter(
        [
            ("admin", "POST", TRIGGERS, 201),
            ("member", "GET", TRIGGERS, 200),
            ("member", "GET", everywhere, 403),
            ("member", "GET", elsewhere, 403),
            ("member", "DELETE", f"{TRIGGERS}/t", 200),
            ("reader", "GET", everywhere, 200),
            ("reader", "POST", TRIGGERS, 403),
            ("reader", "GET", "/apis", 200),
        ]
    )
    for who, method, path, code in allowed:
        answer = await ask(guarded, who, method, path, trigger() if method == "POST" else None)
        assert answer.code == code, (who, method, path)
        if code == 403:
            assert answer.json["reason"] == "Forbidden"
            assert f'User "{who}" cannot' in answer.json["message"]


class Away:
    """A store that cannot be reached, or that has a fault."""

    def __init__(self, store: Any, error: Exception) -> None:
        self.store, self.error, self.broken = store, error, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def get(self, *arguments: Any) -> Mapping[str, object] | None:
        if self.broken:
            raise self.error
        found: Mapping[str, object] | None = await self.store.get(*arguments)
        return found


@pytest.mark.parametrize(
    ("error", "code", "reason", "words"),
    [
        (UnavailableError("the state database: gone"), 503, "ServiceUnavailable", "the state database: gone"),
        (KeyError("secret"), 500, "InternalError", "Internal error occurred: see the gateway's log"),
    ],
)
async def test_an_internal_error_is_a_status_too(
    store: Store, error: Exception, code: int, reason: str, words: str
) -> None:
    resources = Away(store.resources, error)
    api = Api(resources, store.cursors)
    await api.start()
    resources.broken = True
    answer = await call(api, "GET", f"{TRIGGERS}/t")
    assert (answer.code, answer.json["reason"], answer.json["message"]) == (code, reason, words)
    assert answer.header("retry-after") == ("1" if code == 503 else "")
    await api.close()


@pytest.mark.parametrize(
    "path", ["/nowhere", "/api/v1/namespaces/a\nb/configmaps/c", "/\x85", "/a//b", "/\n"]
)
async def test_every_path_is_answered_with_a_status(api: Api, path: str) -> None:
    """Also within the application that serves probes and metrics next to it."""
    served: Any = Starlette(routes=api.routes)
    answer = await call(served, "GET", path)
    assert (answer.code, answer.json["kind"], answer.json["code"]) == (404, "Status", 404)


async def test_a_client_that_leaves_in_the_middle_is_not_an_error(api: Api) -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        sent.append(message)

    await api(
        {"type": "http", "method": "POST", "path": TRIGGERS, "query_string": b"", "headers": []},
        receive,
        send,
    )
    assert sent == []


async def test_two_authorization_headers_are_refused(guarded: Api) -> None:
    """A proxy might have used the other one."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", b"Bearer admin"), (b"authorization", b"Bearer reader")]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": TRIGGERS,
        "query_string": b"",
        "headers": headers,
    }
    await guarded(scope, receive, send)
    assert sent[0]["status"] == 400


async def test_a_reference_to_a_namespace_that_its_author_may_not_read_is_forbidden(guarded: Api) -> None:
    """The status would show whether the object exists, and its address."""
    reference = {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": "b", "namespace": "vic"}
    answer = await ask(guarded, "member", "POST", TRIGGERS, trigger("t", subscriber={"ref": reference}))
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
    assert (
        'a reference to the namespace vic is forbidden: User "member" cannot read' in answer.json["message"]
    )
    assert (
        await ask(guarded, "admin", "POST", TRIGGERS, trigger("t", subscriber={"ref": reference}))
    ).code == 201
    labelled = {
        **trigger("t", subscriber={"ref": reference}),
        "metadata": {"name": "t", "labels": {"a": "b"}},
    }
    assert (await ask(guarded, "member", "PUT", f"{TRIGGERS}/t", labelled)).code == 200, (
        "the reference was there"
    )
    labelled["spec"]["delivery"] = {"deadLetterSink": {"ref": {**reference, "namespace": "other"}}}
    assert (await ask(guarded, "member", "PUT", f"{TRIGGERS}/t", labelled)).code == 403
