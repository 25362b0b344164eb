"""Requests to the gateway at the largest sizes that its limits allow, from many clients that read nothing.

The rows are made from the product's own tables: kinds and verbs, documents, actions, reviews, content modes.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from attack import inventory
from attack.report import Attack, Place, Table, expect
from attack.room import Room
from attack.tables.pipelines import flooding, request
from knative_gateway.api import actions, reviews
from knative_gateway.api.describing import documents
from knative_gateway.http import web
from knative_gateway.paths.asked import LOOKED_AT_MAX, SUBSCRIBERS_MAX
from knative_gateway.resources.documents.bounds import OBJECT_VALUES_MAX
from knative_gateway.resources.kinds import BUILT_IN, Kind
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.validation import ANNOTATIONS_BYTES_MAX

JSON: Final = "content-type: application/json\r\n"
OBJECTS: Final = 1000
SMALL_OBJECTS: Final = 30
"""ConfigMaps that lists and watches show."""
VALUES: Final = OBJECT_VALUES_MAX // 2 - 100
"""Members of a ConfigMap: each is a value, and has an entry in `managedFields`."""
SMALL_VALUES: Final = 1000
VALUES_VERBS: Final = ("get", "create", "update", "patch", "apply", "JSON patch", "YAML", "unknown fields")
_BATCH: Final = "application/cloudevents-batch+json"
_NAMES: Final = {"specversion": "1.0", "id": "1", "source": "/s"}


def _clients(room: Room) -> int:
    return 10 if room.is_small else 100


def _many(room: Room) -> int:
    """Requests of a client: more than wait in the gateway."""
    return 10 if room.is_small else 100


def _path(kind: Kind, name: str = "", query: str = "") -> str:
    root = "/api/v1" if not kind.group else f"/apis/{kind.group}/{kind.version}"
    space = "/namespaces/m" if kind.namespaced else ""
    return f"{root}{space}/{kind.plural}{'/' if name else ''}{name}{query}"


def _large(kind: Kind) -> bytes:
    """An object with as many bytes of annotations as may be."""
    annotation = "x" * (ANNOTATIONS_BYTES_MAX - 100)
    spec: dict[str, Any] = {"spec": {}} if kind.kind not in {"ConfigMap", "Namespace", "Event"} else {}
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "large", "annotations": {"large": annotation}},
        **spec,
    }
    return json.dumps(body).encode()


def _asked(room: Room, kind: Kind, verb: str) -> bytes:  # noqa: PLR0911  one row for each kind
    """One request of this verb for a kind. Nothing is changed: what could change something is a dry run."""
    match verb:
        case "get":
            return request(room, _path(kind, "default"))
        case "list":
            return request(room, _path(kind))
        case "watch":
            return request(room, _path(kind, query="?watch=1&timeoutSeconds=1"))
        case "create":
            return request(
                room, _path(kind, query="?dryRun=All"), method="POST", body=_large(kind), more=JSON
            )
        case "update":
            return request(
                room, _path(kind, "large", "?dryRun=All"), method="PUT", body=_large(kind), more=JSON
            )
        case "patch":
            steps = [{"op": "test", "path": "/kind", "value": kind.kind}] * json_patches.OPERATIONS_MAX
            more = "content-type: application/json-patch+json\r\n"
            body = json.dumps(steps).encode()
            return request(room, _path(kind, "default", "?dryRun=All"), method="PATCH", body=body, more=more)
        case "delete":
            return request(room, _path(kind, "none"), method="DELETE")
        case "deletecollection":
            return request(room, _path(kind, query="?labelSelector=none%3Dnone&dryRun=All"), method="DELETE")
        case _:
            message = f"no request is known for {verb}: a new verb needs one here"
            raise NotImplementedError(message)


def _verb(verb: str) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        _fill(room)
        block = b"".join(_asked(room, kind, verb) for kind in BUILT_IN.kinds)
        yield from flooding(room, block * max(1, _many(room) // 10), _clients(room))

    return run


def _values(how: str) -> Callable[[Room], Iterator[str]]:
    """Requests with, or for, an object that has as many values as may be. Each is a dry run."""

    def run(room: Room) -> Iterator[str]:
        count = SMALL_VALUES if room.is_small else VALUES
        data = {f"k{number}": "" for number in range(count)}
        room.make("ConfigMap", "v1", "m", "values", {"data": data})
        yield from flooding(room, _of_values(room, how, data) * (2 if room.is_small else 5), _clients(room))

    return run


def _of_values(room: Room, how: str, data: dict[str, str]) -> bytes:
    kind = next(each for each in BUILT_IN.kinds if each.kind == "ConfigMap")
    others, one = (
        _path(kind, query="?dryRun=All"),
        _path(kind, "values", "?dryRun=All&fieldManager=m&force=1"),
    )
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "values"}, "data": data}
    new = {**body, "metadata": {"name": "new"}}
    if how == "get":
        return request(room, _path(kind, "values"))
    if how == "YAML":
        # With a comment first: a body that begins with a brace is read as JSON.
        text = f"# YAML\n{json.dumps(new, indent=1)}".encode()
        return request(room, others, method="POST", body=text, more="content-type: application/yaml\r\n")
    first = {"op": "add", "path": "/x", "value": [0] * len(data)}
    again = {"op": "move", "from": "/x/0", "path": "/x/0"}
    operations = [first, *[again] * (json_patches.OPERATIONS_MAX - 1)]
    path, method, sent, type_ = {
        "create": (others, "POST", new, "json"),
        "unknown fields": (others, "POST", {**new, "data": {}, **dict.fromkeys(data, 1)}, "json"),
        "update": (one, "PUT", body, "json"),
        "patch": (one, "PATCH", {"data": {"k0": "x"}}, "merge-patch+json"),
        "apply": (one, "PATCH", body, "apply-patch+yaml"),
        "JSON patch": (one, "PATCH", operations, "json-patch+json"),
    }[how]
    more = f"content-type: application/{type_}\r\n"
    return request(room, path, method=method, body=json.dumps(sent).encode(), more=more)


def _fill(room: Room) -> None:
    """Objects of the attacker that lists and watches show."""
    count = SMALL_OBJECTS if room.is_small else OBJECTS
    if room.ask("GET", f"/api/v1/namespaces/m/configmaps/filler-{count - 1}")[0] == 200:
        return
    for number in range(count):
        room.make("ConfigMap", "v1", "m", f"filler-{number}", {"data": {"text": "x" * 1000}})


def _document(path: str) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        yield from flooding(room, request(room, path) * _many(room), _clients(room))

    return run


def _review(path: str) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        kind = {
            "selfsubjectaccessreviews": "SelfSubjectAccessReview",
            "selfsubjectrulesreviews": "SelfSubjectRulesReview",
        }
        body = {"kind": kind.get(path.rpartition("/")[2], "SelfSubjectReview"), "spec": {"namespace": "m"}}
        sent = request(room, path, method="POST", body=json.dumps(body).encode(), more=JSON)
        yield from flooding(room, sent * _many(room), _clients(room))

    return run


def _action(name: str) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        room.trigger("m", "acted-on", "default", "http://127.0.0.1:9/")
        of = "brokers/default" if name in actions.OF_SOURCES else "triggers/acted-on"
        path = f"/apis/eventing.knative.dev/v1/namespaces/m/{of}/{name}"
        slow = {"cesql": " OR ".join(["type LIKE '%a%b%c%'"] * 250)}
        bodies: dict[str, object] = {
            actions.REPLAY: {"start": "earliest"},
            actions.MATCH: {"filters": [slow, slow], "events": 100},
            actions.EVENTS: {"id": "none", "look_at": LOOKED_AT_MAX},
            actions.TRACE: {"event": {**_NAMES, "type": "a" * 10_000}, "limit": SUBSCRIBERS_MAX},
        }
        body = bodies.get(name, {})
        method = "GET" if name == actions.DELIVERIES else "POST"
        sent = request(room, path, method=method, body=json.dumps(body).encode(), more=JSON)
        yield from flooding(room, sent * _many(room), _clients(room))
        _remove_trigger(room, "acted-on")

    return run


def _remove_trigger(room: Room, name: str) -> None:
    status, words = room.ask("DELETE", f"/apis/eventing.knative.dev/v1/namespaces/m/triggers/{name}")
    expect(status == 200, f"DELETE of a Trigger: {status} {words}")


def _events(prefix: str, mode: str) -> Callable[[Room], Iterator[str]]:
    """Events of the largest size; to a path that exists, or not (a Channel)."""

    def run(room: Room) -> Iterator[str]:
        path = f"{prefix}m/default"
        sent = _event(room, path, mode)
        clients = 5 if room.is_small else 20
        yield from flooding(room, sent * (2 if room.is_small else 10), clients)

    return run


def _event(room: Room, path: str, mode: str) -> bytes:
    size = int(room.gateway_limits.body) - 4096
    one: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/m", "type": "m"}
    match mode:
        case "binary":
            more = (
                "ce-specversion: 1.0\r\nce-id: 1\r\nce-source: /m\r\nce-type: m\r\ncontent-type: "
                "text/plain\r\n"
            )
            return request(room, path, method="POST", body=b"x" * size, more=more)
        case "structured":
            body = json.dumps({**one, "data": "x" * size}).encode()
            more = "content-type: application/cloudevents+json\r\n"
            return request(room, path, method="POST", body=body, more=more)
        case "batch":
            many = [
                {**one, "id": str(number), "data": "x" * 500}
                for number in range(room.gateway_limits.batch_events)
            ]
            return request(
                room, path, method="POST", body=json.dumps(many).encode(), more=f"content-type: {_BATCH}\r\n"
            )
        case _:
            message = f"no event is known in {mode} mode: a new content mode needs one here"
            raise NotImplementedError(message)


def _attack(name: str, limit: str, run: Callable[[Room], Iterator[str]], *covers: str) -> Attack:
    return Attack(name, Table.PRODUCTS, Place.GATEWAY, frozenset(covers), limit, run)


def _made() -> Iterator[Attack]:
    for verb in inventory.VERBS:
        covers = [f"gateway {inventory.kind_name(kind)} {verb}" for kind in BUILT_IN.kinds]
        yield _attack(f"{verb} of every kind from many clients", "turns of requests", _verb(verb), *covers)
    for how in VALUES_VERBS:
        verb = how if how in inventory.VERBS else "create" if how in {"YAML", "unknown fields"} else "patch"
        yield _attack(
            f"{how} of objects with as many values as may be",
            "OBJECT_VALUES_MAX, turns of requests",
            _values(how),
            f"gateway core/v1/configmaps {verb}",
        )
    for path in documents.PATHS:
        yield _attack(
            f"GET {path} from many clients", "turns of requests", _document(path), f"gateway document {path}"
        )
    for path in sorted(reviews.PATHS):
        yield _attack(
            f"POST {path}", "turns of requests", _review(path), f"gateway review {path.rpartition('/')[2]}"
        )
    for name in (actions.DELIVERIES, *actions.POSTED):
        yield _attack(
            f"{name} of a {'Broker' if name in actions.OF_SOURCES else 'Trigger'} from many clients",
            "turns of requests",
            _action(name),
            f"gateway action {name}",
        )
    for path in web.EVENTS:
        for mode in inventory.CONTENT_MODES:
            yield _attack(
                f"the largest events, {mode}, to {path}",
                "limits.body, limits.pending",
                _events(path, mode),
                f"gateway POST {path} {mode}",
            )


ATTACKS: Final = tuple(_made())
