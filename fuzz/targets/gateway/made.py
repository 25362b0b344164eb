"""Objects as clients send them: mostly right, with something wrong now and then."""

from typing import Any, Final

from fuzz.draw import Draw
from fuzz.targets.gateway.documents import value

KINDS: Final = (
    *3 * (("eventing.knative.dev/v1", "Broker"), ("eventing.knative.dev/v1", "Trigger")),
    *2 * (("messaging.knative.dev/v1", "Channel"), ("messaging.knative.dev/v1", "Subscription")),
    ("messaging.knative.dev/v1", "InMemoryChannel"),
    *2 * (("v1", "ConfigMap"), ("v1", "Service")),
    ("v1", "Namespace"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
)
_NAMES: Final = (
    "a",
    "b",
    "c",
    "a",
    "b",
    "c",
    "A_",
    "",
    "a" * 64,
    "a" * 254,
    "x.y",
    "config-br-default-channel",
    "\u00e9",
    "-",
)
_TEXTS: Final = (
    "", "a", "true", "http://a.example/", "http://s.default.svc/", "http://gateway:8080/broker/default/a",
    "http://[::1", "/p", "PT1S", "P7D", "PT0.5S", "P1Y", "P" + "9" * 40 + "D", "linear", "exponential",
    "json", "5", "0", "1025", "@latest", "earliest", "time=2026-01-31T12:00:00Z",
    "time=0001-01-01T00:00:00+23:59", "offset=0=5,1=@latest", "key", "ordered", "1e3", "a\nb", "\U0001f600",
    "{}", "Ready", "\x00",
)  # fmt: skip
_ANNOTATIONS: Final = (
    "knative-gateway/paused", "knative-gateway/start", "knative-gateway/order",
    "knative-gateway/in-flight-max", "knative-gateway/per-second-max", "knative-gateway/duplicate-window",
    "kafka.eventing.knative.dev/delivery.order", "knative.dev/dependency", "eventing.knative.dev/injection",
    "eventing.knative.dev/broker.class", "x",
)  # fmt: skip
_CONDITIONS: Final = ("Ready", "Ready", "Addressable", "IngressReady", "SubscriptionReady", "", "a")
_STATUSES: Final = ("True", "False", "Unknown", "", "nonsense")
_STATUS_FIELDS: Final = (
    "observedGeneration", "address", "annotations", "conditions", "deliveries", "history", "subscribers",
    "subscriberUri", "deadLetterSinkUri", "physicalSubscription",
)  # fmt: skip
_DELIVERIES: Final = (
    "retry: 3\nbackoffDelay: PT1S\nbackoffPolicy: linear", "retry: !!bool x", "{retry: 1}", "10: 3",
    "a: &a [*a]", "retry: 0xffffffffffffff", "timeout: PT0S",
    "deadLetterSink:\n  ref: {apiVersion: v1, kind: Service, name: a}", "- 1", "<<: {retry: 1}",
    "&a {retry: 1, x: *a}",
)  # fmt: skip


def made(draw: Draw, kind: tuple[str, str] | None = None) -> dict[str, Any]:
    """An object."""
    api_version, name = kind or draw.pick(KINDS)
    object_: dict[str, Any] = {"apiVersion": api_version, "kind": name, "metadata": _metadata(draw)}
    content = _CONTENTS[name](draw)
    object_ |= content if name == "ConfigMap" else {"spec": content}
    if draw.chance(12):
        object_["status"] = value(draw)
    if draw.chance(6):
        _change(draw, object_)
    return object_


def status(draw: Draw) -> object:
    """The status of an object as clients write it: mostly with the right types."""
    if draw.chance(8):
        return value(draw)
    made_: dict[str, Any] = {
        "conditions": [
            {"type": draw.pick(_CONDITIONS), "status": draw.pick(_STATUSES)}
            | ({"reason": draw.pick(_TEXTS)} if draw.chance(2) else {})
            | ({"message": _text(draw)} if draw.chance(2) else {})
            | ({"lastTransitionTime": draw.pick(_TEXTS)} if draw.chance(2) else {})
            for _ in range(draw.below(4))
        ]
    }
    if draw.chance(2):
        made_ |= {draw.pick(_STATUS_FIELDS): value(draw) for _ in range(1 + draw.below(2))}
    if draw.chance(4):
        made_["address"] = {"url": draw.pick(_TEXTS)}
    return made_


def _metadata(draw: Draw) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": _name(draw)}
    if draw.chance(3):
        metadata["annotations"] = {draw.pick(_ANNOTATIONS): _text(draw) for _ in range(draw.below(4))}
    if draw.chance(8):
        metadata["labels"] = {_text(draw): _text(draw)}
    if draw.chance(16):
        metadata |= {
            draw.pick(
                (
                    "generateName",
                    "uid",
                    "resourceVersion",
                    "namespace",
                    "managedFields",
                    "finalizers",
                    "ownerReferences",
                )
            ): value(draw)
        }
    return metadata


def _name(draw: Draw) -> str:
    return draw.pick(_NAMES[:6] if not draw.chance(12) else _NAMES)


def _text(draw: Draw) -> str:
    return draw.pick(_TEXTS) if not draw.chance(12) else draw.text(20)


def _reference(draw: Draw) -> dict[str, Any]:
    kind = draw.pick((*KINDS, ("g.example/v1", "Thing")))
    reference: dict[str, Any] = {"apiVersion": kind[0], "kind": kind[1], "name": _name(draw)}
    if draw.chance(4):
        reference["namespace"] = draw.pick(("default", "other", "knative-eventing"))
    return reference


def _destination(draw: Draw) -> dict[str, Any]:
    if draw.chance(2):
        return {"uri": "http://a.example/" if draw.chance(2) else _text(draw)}
    return {"ref": _reference(draw), **({"uri": _text(draw)} if draw.chance(4) else {})}


def _delivery(draw: Draw) -> dict[str, Any]:
    delivery: dict[str, Any] = {}
    for name in ("backoffDelay", "backoffMax", "timeout", "retryAfterMax"):
        if draw.chance(4):
            delivery[name] = draw.pick(("PT1S", "PT0S", "PT0.1S", _text(draw)))
    if draw.chance(2):
        delivery["retry"] = draw.pick((0, 1, 10, -1, 1 << 31, 1.5, "1"))
    if draw.chance(3):
        delivery["deadLetterSink"] = _destination(draw)
    if draw.chance(4):
        delivery |= {
            "backoffPolicy": draw.pick(("linear", "exponential", "x")),
            "format": draw.pick(("json", "binary", "x")),
        }
    return delivery


def _broker(draw: Draw) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw.chance(3):
        spec["config"] = (
            {"apiVersion": "v1", "kind": "ConfigMap", "name": _name(draw)}
            if not draw.chance(6)
            else _reference(draw)
        )
    return spec | ({"delivery": _delivery(draw)} if draw.chance(3) else {})


def _trigger(draw: Draw) -> dict[str, Any]:
    spec: dict[str, Any] = {"broker": _name(draw), "subscriber": _destination(draw)}
    if draw.chance(3):
        spec["filter"] = {"attributes": {"type": _text(draw)}}
    if draw.chance(3):
        spec["filters"] = [
            {
                draw.pick(("exact", "prefix", "cesql", "all", "not", "x")): draw.pick(
                    ({"type": "a"}, "type = 'a'", [], {}, None)
                )
            }
        ]
    return spec | ({"delivery": _delivery(draw)} if draw.chance(3) else {})


def _channel(draw: Draw) -> dict[str, Any]:
    spec: dict[str, Any] = {"delivery": _delivery(draw)} if draw.chance(3) else {}
    if draw.chance(3):
        settings = {
            draw.pick(("partitions", "numPartitions", "retention", "retentionDuration")): draw.pick(
                (1, "4", "P1D", _text(draw), 1e300)
            )
        }
        spec["channelTemplate"] = {
            "apiVersion": "messaging.knative.dev/v1",
            "kind": "InMemoryChannel",
            "spec": settings,
        }
    return spec | ({"subscribers": value(draw)} if draw.chance(12) else {})


def _subscription(draw: Draw) -> dict[str, Any]:
    channel = {
        "apiVersion": "messaging.knative.dev/v1",
        "kind": draw.pick(("Channel", "InMemoryChannel")),
        "name": _name(draw),
    }
    spec: dict[str, Any] = {"channel": channel if not draw.chance(8) else _reference(draw)}
    for name in ("subscriber", "reply"):
        if not draw.chance(3):
            spec[name] = _destination(draw)
    return spec | ({"delivery": _delivery(draw)} if draw.chance(3) else {})


def config_map(draw: Draw) -> dict[str, Any]:
    """What a ConfigMap with the settings of a Broker holds."""
    data: dict[str, Any] = {}
    if draw.chance(2):
        data["delivery"] = draw.pick(
            (draw.pick(_DELIVERIES), draw.text(400), _aliases(draw.below(12)), "[" * draw.below(9000))
        )
    for name in ("partitions", "default.topic.partitions", "retention", "retentionDuration"):
        if draw.chance(4):
            data[name] = draw.pick(("1", "8", "P7D", "PT0S", _text(draw)))
    return {"data": data} | (
        {"binaryData": {"a": _text(draw)}, "immutable": draw.chance(2)} if draw.chance(8) else {}
    )


def _aliases(levels: int) -> str:
    """A YAML text in which each level names the one before nine times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(lines)


def _service(draw: Draw) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw.chance(3):
        spec |= {
            "type": "ExternalName",
            "externalName": draw.pick(("out.example", "a b", "x/y", "127.0.0.1", _text(draw))),
        }
    if draw.chance(2):
        spec["ports"] = [
            {"port": draw.pick((80, 0, 65536, -1, "80")), "targetPort": draw.pick((80, "http", None))}
            for _ in range(draw.below(3))
        ]
    return spec


def _definition(draw: Draw) -> dict[str, Any]:
    kind = draw.pick(
        (
            ("g.example", "Thing", "things"),
            ("serving.knative.dev", "Service", "services"),
            ("messaging.knative.dev", "Channel", "channels"),
            ("", "", ""),
        )
    )
    schema = {
        "openAPIV3Schema": value(draw)
        if draw.chance(3)
        else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    path = draw.pick((".spec.a", ".status", "[", _text(draw)))
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "a", "type": draw.pick(("string", "date", "integer", "x")), "jsonPath": path}
        ],
    }
    return {
        "group": kind[0],
        "scope": draw.pick(("Namespaced", "Cluster")),
        "names": {"kind": kind[1], "plural": kind[2]},
        "versions": [version],
    }


def _namespace(draw: Draw) -> dict[str, Any]:
    return {"finalizers": value(draw)} if draw.chance(3) else {}


_CONTENTS: Final = {
    "Broker": _broker,
    "Trigger": _trigger,
    "Channel": _channel,
    "InMemoryChannel": _channel,
    "Subscription": _subscription,
    "ConfigMap": config_map,
    "Service": _service,
    "Namespace": _namespace,
    "CustomResourceDefinition": _definition,
}


def _change(draw: Draw, object_: dict[str, Any]) -> None:
    """Another value somewhere in it."""
    within: Any = object_
    while isinstance(within, dict) and within:
        name = draw.pick(tuple(within))
        if draw.chance(3) or not isinstance(within[name], dict):
            within[name] = value(draw)
            return
        within = within[name]
