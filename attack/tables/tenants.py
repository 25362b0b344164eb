"""Clients of a gateway that may not do what they ask for, at every operation of its tables."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from attack import inventory
from attack.inventory import Stranger
from attack.report import Attack, Place, Table, expect
from attack.room import Room, wait_for
from attack.settings import MALLORY, OPERATOR, RITA, http_token, signed_token
from attack.tables.pipelines import request
from attack.tables.timers import ends_within
from knative_gateway.api import actions, reviews
from knative_gateway.api.describing import documents
from knative_gateway.resources.kinds import BUILT_IN, Kind

_CONFIG_MAPS: Final = "/api/v1/namespaces/m/configmaps"
OPEN_TO_ALL: Final = frozenset({"/healthz", "/readyz", "/metrics"})
Operation = tuple[str, str, object]
"""Method, path, body."""


def _operations(namespace: str) -> Iterator[Operation]:
    """Everything that can be asked about a namespace."""
    for kind in BUILT_IN.kinds:
        for verb in inventory.VERBS:
            yield _operation(kind, verb, namespace)
    for path in documents.PATHS:
        if path not in OPEN_TO_ALL:
            yield "GET", path, None
    for path in sorted(reviews.PATHS):
        yield "POST", path, {}
    trigger = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers/to-nina"
    yield "GET", f"{trigger}/{actions.DELIVERIES}", None
    for name in actions.OF_SUBSCRIBERS:
        yield "POST", f"{trigger}/{name}", {"start": "earliest"}
    for name in actions.OF_SOURCES:
        path = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/brokers/default/{name}"
        yield "POST", path, {"partition": 0, "offset": 0} if name == actions.TRACE else {}
    yield "POST", f"/broker/{namespace}/default", {"specversion": "1.0"}
    yield "POST", f"/channel/{namespace}/default", {"specversion": "1.0"}


def _operation(kind: Kind, verb: str, namespace: str) -> Operation:  # noqa: PLR0911  one row for each kind
    root = "/api/v1" if not kind.group else f"/apis/{kind.group}/{kind.version}"
    all_ = f"{root}{f'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.plural}"
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "default"}, "spec": {}}
    match verb:
        case "get":
            return "GET", f"{all_}/default", None
        case "list":
            return "GET", all_, None
        case "watch":
            return "GET", f"{all_}?watch=1&timeoutSeconds=1", None
        case "create":
            return "POST", all_, body
        case "update":
            return "PUT", f"{all_}/default", body
        case "patch":
            return "PATCH", f"{all_}/default", {"metadata": {"labels": {"a": "b"}}}
        case "delete":
            return "DELETE", f"{all_}/default", None
        case "deletecollection":
            return "DELETE", all_, None
        case _:
            message = f"no request is known for {verb}: a new verb needs one here"
            raise NotImplementedError(message)


def _state(room: Room) -> list[object]:
    """All of the neighbour's objects, without what the gateway itself writes."""
    found: list[object] = []
    for kind in BUILT_IN.kinds:
        if kind.namespaced and kind.kind != "Event":
            _, path, _ = _operation(kind, "list", "n")
            status, words = room.ask("GET", path, user=OPERATOR)
            expect(status == 200, f"GET {path}: {status}")
            found += [
                (each["metadata"]["name"], each["metadata"]["uid"], each.get("spec"))
                for each in json.loads(words)["items"]
            ]
    return found


def _refused_everywhere(room: Room, bearer: str | None, wanted: int) -> int:
    """Every operation with this token gets that status, and a text without the neighbour's names."""
    before, count = _state(room), 0
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    for method, path, body in _operations("n"):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, words = room.ask(method, path, body, user=None, content_type=kind, headers=headers)
        expect(status == wanted, f"{method} {path}: {status}, not {wanted}: {words[:200]}")
        expect("to-nina" not in words, f"{method} {path} names an object of another: {words[:200]}")
        count += 1
    expect(_state(room) == before, "a stranger has changed something")
    return count


def _no_login(room: Room) -> Iterator[str]:
    count = _refused_everywhere(room, None, 401)
    yield f"{count} operations: 401"


def _bad_credentials(room: Room) -> Iterator[str]:
    count = _refused_everywhere(room, "mallory-" + "0" * 64, 401)
    count += _refused_everywhere(room, "none.at.all", 401)
    yield f"{count} operations: 401"


def _expired(room: Room) -> Iterator[str]:
    count = _refused_everywhere(room, signed_token(MALLORY, exp=int(time.time()) - 3600), 401)
    yield f"{count} operations: 401"


def _revoked(room: Room) -> Iterator[str]:
    """The token is taken out of the file: requests end, and so does the watch that is open."""
    tokens = room.folder / "tokens.csv"
    before = tokens.read_text()
    host, _, port = room.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as watching:
        watching.sendall(_watch(room))
        time.sleep(0.2)
        try:
            tokens.write_text(
                "".join(line + "\n" for line in before.splitlines() if not line.startswith(f"{RITA}-"))
            )
            room.reload()
            count = _refused_everywhere(room, http_token(room.secret, RITA), 401)
            yield f"{count} operations: 401"
            ends_within(watching, 10.0)
        finally:
            tokens.write_text(before)
            room.reload()
    wait_for(lambda: room.ask("GET", _CONFIG_MAPS, user=RITA)[0] == 200, "the token is good again")


def _watch(room: Room) -> bytes:
    return request(room, f"{_CONFIG_MAPS}?watch=1&timeoutSeconds=3600", user=RITA)


def _wrong_tenant(room: Room) -> Iterator[str]:
    """Every operation in the neighbour's namespace with a good token of another."""
    before, asked = _state(room), 0
    answers: dict[str, dict[tuple[str, str], tuple[int, str]]] = {}
    for namespace in ("n", "unknown"):
        answers[namespace] = {}
        for method, path, body in _operations(namespace):
            if f"/{namespace}/" not in path and not path.endswith(f"/{namespace}"):
                continue
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            status, words = room.ask(method, path, body, content_type=kind)
            expect(status == 403, f"{method} {path}: {status}: {words[:200]}")
            told = (
                words.replace(f"/{namespace}/", "/N/")
                .replace(f'"{namespace}"', '"N"')
                .replace(f"'{namespace}'", "'N'")
            )
            answers[namespace][method, path.replace(f"/{namespace}/", "/N/")] = status, told
            asked += 1
    for key, (status, words) in answers["n"].items():
        other = answers["unknown"][key]
        same = (status, words.replace(" n ", " N ").replace(" n/", " N/")) == (
            other[0],
            other[1].replace(" unknown ", " N ").replace(" unknown/", " N/"),
        )
        expect(
            same or len(words) - len(other[1]) == len("n") - len("unknown"),
            f"{key} tells: {words[:200]} {other[1][:200]}",
        )
    expect(_state(room) == before, "another tenant has changed something")
    yield f"{asked} operations: 403, alike for a namespace that is there and one that is not"


def _references(room: Room) -> Iterator[str]:
    """References of objects to those of another namespace show nothing of them."""
    spec: dict[str, Any] = {
        "broker": "default",
        "subscriber": {
            "ref": {
                "apiVersion": "eventing.knative.dev/v1",
                "kind": "Broker",
                "name": "default",
                "namespace": "n",
            }
        },
    }
    body = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": "points"},
        "spec": spec,
    }
    told = []
    for name in ("default", "unknown"):
        spec["subscriber"]["ref"]["name"] = name
        status, words = room.ask("POST", "/apis/eventing.knative.dev/v1/namespaces/m/triggers", body)
        told.append((status, words.replace("unknown", "default")))
        room.ask("DELETE", "/apis/eventing.knative.dev/v1/namespaces/m/triggers/points")
    expect(told[0] == told[1], f"a reference tells whether an object is there: {told}")
    yield f"a Trigger that refers to another namespace: {told[0][0]}, alike for what is there and what is not"


def _attack(
    name: str, stranger: Stranger, run: Callable[[Room], Iterator[str]], *, is_patient: bool = False
) -> Attack:
    return Attack(
        name,
        Table.ACCESS,
        Place.GATEWAY,
        frozenset({f"gateway: {stranger}"}),
        "tokens and rules",
        run,
        is_patient=is_patient,
    )


ATTACKS: Final = (
    _attack("requests without a token", Stranger.NO_LOGIN, _no_login),
    _attack("requests with a token of nobody", Stranger.BAD_CREDENTIALS, _bad_credentials),
    _attack("requests with an expired token", Stranger.EXPIRED, _expired),
    _attack("requests with a token that was taken away", Stranger.REVOKED, _revoked, is_patient=True),
    _attack("a tenant asks about another's namespace", Stranger.WRONG_TENANT, _wrong_tenant),
    _attack("a tenant refers to another's objects", Stranger.WRONG_TENANT, _references),
)
