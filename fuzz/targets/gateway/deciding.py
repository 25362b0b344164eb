"""What the controller makes of objects that admission took: whatever they are, each gets its status, none
raises, incremental work gives what a start from nothing gives, and it comes to rest. A ConfigMap costs no
more than its size allows.
"""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Final

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.gateway.documents import value
from fuzz.targets.gateway.made import KINDS, config_map, made, status
from knative_gateway.ports import Key
from knative_gateway.resources import admission
from knative_gateway.resources.admission import FieldValidation, Request
from knative_gateway.resources.documents.manifests import ManifestError, check_text, read_json
from knative_gateway.resources.kinds import BUILT_IN, Kind
from knative_gateway.resources.objects import Object, child, put, text
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.printing import table
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.controller.world import NOW_MS, World

BROKER: Final = {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "a"}}
_CODES: Final = frozenset({400, 409, 413, 415, 422})
_HELD_MAX: Final = 12


def run(data: bytes) -> str:
    """Some objects, changed and deleted, with the controller at work between the changes."""
    draw = Draw(data)
    world, shown = World(), list[str]()
    if draw.chance(3):
        with suppress(StatusError):
            world.send(
                {**config_map(draw), "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
            )
        world.send({**BROKER, "spec": {"config": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}}})
    for number in range(1 + draw.below(10)):
        shown.append(_step(draw, world, number))
        if draw.chance(3):
            world.works = not world.works
            world.step()
    world.works = True
    world.settle()
    for key, object_ in world.objects.items():
        _is_shown(key, object_)
    return " ".join(sorted({*shown, *(_state(each) for each in world.objects.values())}))


def _step(draw: Draw, world: World, number: int) -> str:
    if world.objects and draw.chance(6):
        world.delete(draw.pick(tuple(world.objects)))
        return "deleted"
    try:
        body = read_json(json.dumps(made(draw)).encode())
    except ManifestError:
        return "not read"
    kind = BUILT_IN.of(text(body, "apiVersion"), text(body, "kind"))
    if kind is None or len(world.objects) >= _HELD_MAX:
        kind = BUILT_IN.of(*draw.pick(KINDS))
        assert kind is not None
    namespace = "default" if kind.namespaced else ""
    name = text(body, "metadata", "name")
    request = Request(
        kind,
        namespace,
        name,
        NOW_MS,
        manager=draw.pick(("a", "b")),
        validation=draw.pick(tuple(FieldValidation)),
    )
    key = Key(kind.group, kind.kind, namespace, name)
    try:
        stored = _admitted(draw, request, world.objects.get(key), body, f"sent-{number}")
        if kind.status and kind.kind != "Namespace" and draw.chance(3):
            stored = _with_status(draw, request, stored)
    except StatusError as error:
        json.dumps(error.status()).encode()
        if error.code not in _CODES:
            raise
        return f"{error.code} {kind.kind}"
    check_text(stored)
    if json.loads(json.dumps(stored, allow_nan=False)) != stored:
        message = f"{stored!r} is another object when it is read from the database"
        raise WrongError(message)
    _same_again(request, stored, kind)
    world.objects[key] = put(stored, ("metadata", "resourceVersion"), str(number + 1))
    return f"took {kind.kind}"


def _admitted(draw: Draw, request: Request, old: Object | None, body: object, uid: str) -> Object:
    if draw.chance(4):
        return admission.apply(request, old, body, uid=uid, force=draw.chance(2)).object
    if old is None:
        return admission.create(request, body, uid=uid).object
    match draw.below(4):
        case 0:
            return admission.patch(request, old, json_patches.MERGE, body).object
        case 1:
            kind = json_patches.STRATEGIC if request.kind.group == "" else json_patches.MERGE
            return admission.patch(
                request, old, kind, {"metadata": {"labels": {"x": "y"}}, "spec": value(draw)}
            ).object
        case _:
            return admission.replace(request, old, body).object


def _with_status(draw: Draw, request: Request, stored: Object) -> Object:
    """The object after a client has written its status."""
    patch = [{"op": "add", "path": "/status", "value": status(draw)}]
    return admission.patch(replace(request, subresource="status"), stored, json_patches.JSON, patch).object


def _same_again(request: Request, stored: Object, kind: Kind) -> None:
    """What is stored can be sent back unchanged."""
    try:
        again = admission.replace(request, stored, stored).object
    except StatusError as error:
        message = f"{stored!r} is stored, but refused when it is sent again: {error}"
        raise WrongError(message) from error
    if not admission.unchanged(stored, again):
        message = f"{stored!r} is stored, and sent again it becomes {again!r}"
        raise WrongError(message)
    table(kind, [stored], now_ms=NOW_MS, version="1")


def _is_shown(key: Key, object_: Object) -> None:
    check_text(object_)
    json.dumps(object_, allow_nan=False)
    kind = next(each for each in BUILT_IN.kinds if (each.group, each.kind) == (key.group, key.kind))
    table(kind, [object_], now_ms=NOW_MS, version="1", include="Object")


def _state(object_: Object) -> str:
    conditions = child(object_, "status").get("conditions")
    ready = (
        [text(each, "status") for each in conditions if text(each, "type") == "Ready"]
        if isinstance(conditions, list)
        else []
    )
    return f"{text(object_, 'kind')} {ready}"


TARGET: Final = Target("deciding", run, seconds_max=1.0)
