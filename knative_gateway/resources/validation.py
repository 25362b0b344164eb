"""The rules of each kind that a schema cannot express: names, references, destinations, delivery, immutable
fields.

All errors of an object are reported at once, each with its field.

Spec: knative-eventing-test-spec, "Resource Lifecycle" and "Detailed Resources".
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from knative_gateway.filters import Problem, validate, validate_attributes
from knative_gateway.resources import extensions
from knative_gateway.resources.defaults import BROKER_CLASS
from knative_gateway.resources.durations import duration_ms
from knative_gateway.resources.hosts import is_dns_name
from knative_gateway.resources.kinds import EXTENSIONS, Kind
from knative_gateway.resources.objects import Object, annotation, at, child, entries, name_of, same, text
from knative_gateway.resources.refusals import Because, Cause
from knative_gateway.resources.schema.checking import below

NAME_CHARACTERS_MAX: Final = 180
"""Characters of the name of a Broker, Trigger, Channel or Subscription.

The name of a log is made of kind, namespace and name, and has at most 255 characters.
"""
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
URL_CHARACTERS_MAX: Final = 2048
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_IMMUTABLE: Final = "field is immutable"
_TABLES: Final = frozenset({"metadata.annotations", "metadata.labels"})
_DURATIONS: Final = ("backoffDelay", "backoffMax", "timeout", "retryAfterMax")


def check_object(kind: Kind, object_: Object, old: Object | None = None) -> list[Cause]:
    """Return all errors of an object that fits its schema already. `old` is the stored object that it
    replaces.

    An error that `old` has as well, in a field that does not change, is not one: an earlier version had other
    rules, and its users must be able to pause and change what they have.

    Spec: Kubernetes, "Validation ratcheting".
    """
    causes = _causes(kind, object_, old)
    if old is None:
        return causes
    known = _in_kept_fields(causes, object_, old)
    if known:
        known &= set(_causes(kind, old, old))
    return [cause for cause in causes if cause not in known]


def _in_kept_fields(causes: Iterable[Cause], object_: Object, old: Object) -> set[Cause]:
    """The errors in fields that have the same value in both objects. A list is compared as a whole."""
    paths = {cause: _path(cause.field) for cause in causes}
    # Each path once: 1,024 filters with an error are one list.
    kept = {path for path in set(paths.values()) if same(at(object_, *path), at(old, *path))}
    return {cause for cause, path in paths.items() if path in kept}


def _path(field: str) -> tuple[str, ...]:
    name, _, key = field.partition("[")
    path = tuple(name.split("."))
    return (*path, key.removesuffix("]")) if name in _TABLES and key else path


def _causes(kind: Kind, object_: Object, old: Object | None) -> list[Cause]:
    causes = check_metadata(kind, object_)
    match kind.group, kind.kind:
        case "eventing.knative.dev", "Broker":
            causes += _broker(object_, old)
        case "eventing.knative.dev", "Trigger":
            causes += _trigger(object_, old)
        case "messaging.knative.dev", "Channel":
            causes += (
                _fixed(object_, old, ("spec", "channelTemplate")) + _template(object_) + _channelable(object_)
            )
        case "messaging.knative.dev", "InMemoryChannel":
            causes += _channelable(object_)
        case "messaging.knative.dev", "Subscription":
            causes += _subscription(object_, old)
        case "apiextensions.k8s.io", "CustomResourceDefinition":
            causes += _definition(object_, old)
        case "", "Service":
            causes += _service(object_)
        case "", "ConfigMap" if at(old, "immutable") is True:
            causes += [
                cause
                for name in ("data", "binaryData", "immutable")
                for cause in _fixed(object_, old, (name,))
            ]
        case _:
            pass
    return causes


def check_metadata(kind: Kind, object_: Object) -> list[Cause]:
    """Check name, labels and annotations."""
    name = name_of(object_)
    causes: list[Cause] = []
    if not name:
        causes.append(Cause(Because.REQUIRED, "metadata.name", "name or generateName is required"))
    elif kind.group == "" and kind.kind in {"Namespace", "Service"}:
        if not _LABEL.fullmatch(name):
            words = "at most 63 lower-case letters, digits and '-', the first and the last a letter or digit"
            causes.append(Cause(Because.INVALID, "metadata.name", f'"{name[:80]}": {words}'))
    elif not _SUBDOMAIN.fullmatch(name):
        words = (
            "lower-case letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
        )
        causes.append(Cause(Because.INVALID, "metadata.name", f'"{name[:80]}": {words}'))
    # 253 is the limit of Kubernetes for the name of an object.
    limit = 253 if kind.group in {"", EXTENSIONS} else NAME_CHARACTERS_MAX
    if len(name) > limit:
        causes.append(Cause(Because.TOO_LONG, "metadata.name", f"must have at most {limit} characters"))
    for key, value in child(object_, "metadata", "labels").items():
        if not _QUALIFIED.fullmatch(key) or not _LABEL_VALUE.fullmatch(str(value)):
            causes.append(
                Cause(Because.INVALID, f"metadata.labels[{key}]", f'"{str(value)[:80]}": not a label')
            )
    annotations = child(object_, "metadata", "annotations")
    causes += [
        Cause(Because.INVALID, f"metadata.annotations[{key}]", "not an annotation's name")
        for key in annotations
        if not _QUALIFIED.fullmatch(key)
    ]
    if sum(len(key) + len(str(value).encode()) for key, value in annotations.items()) > ANNOTATIONS_BYTES_MAX:
        causes.append(
            Cause(
                Because.TOO_LONG, "metadata.annotations", f"must have at most {ANNOTATIONS_BYTES_MAX} bytes"
            )
        )
    return causes


def _broker(broker: Object, old: Object | None) -> list[Cause]:
    causes = check_delivery(broker) + extensions.duplicate_window_ms(broker)[1]
    if at(broker, "spec", "config") is not None:
        causes += _reference(child(broker, "spec", "config"), "spec.config")
    if old is not None:
        causes += _fixed(broker, old, ("spec", "config"))
        if annotation(broker, BROKER_CLASS) != annotation(old, BROKER_CLASS):
            causes.append(_changed(f"metadata.annotations[{BROKER_CLASS}]", annotation(broker, BROKER_CLASS)))
    return causes


def _trigger(trigger: Object, old: Object | None) -> list[Cause]:
    causes = check_delivery(trigger) + extensions.of_subscriber(trigger)[1]
    causes += extensions.dependency(trigger)[1] + extensions.injection(trigger)
    if not text(trigger, "spec", "broker"):
        causes.append(Cause(Because.REQUIRED, "spec.broker", "the name of a Broker in the same namespace"))
    elif not _SUBDOMAIN.fullmatch(text(trigger, "spec", "broker")):
        causes.append(
            Cause(
                Because.INVALID,
                "spec.broker",
                f'"{text(trigger, "spec", "broker")[:80]}": not the name of a Broker',
            )
        )
    causes += _destination(child(trigger, "spec", "subscriber"), "spec.subscriber")
    causes += map(
        _filter_cause,
        validate_attributes(at(trigger, "spec", "filter", "attributes"), "spec.filter.attributes"),
    )
    causes += map(_filter_cause, validate(at(trigger, "spec", "filters"), "spec.filters"))
    return causes + _fixed(trigger, old, ("spec", "broker"))


def _filter_cause(problem: Problem) -> Cause:
    return Cause(
        Because.INVALID,
        problem.field,
        f"{problem.message}: {problem.details}" if problem.details else problem.message,
    )


def _subscription(subscription: Object, old: Object | None) -> list[Cause]:
    causes = check_delivery(subscription) + extensions.of_subscriber(subscription)[1]
    channel = child(subscription, "spec", "channel")
    if not channel:
        causes.append(
            Cause(Because.REQUIRED, "spec.channel", "a reference to a Channel in the same namespace")
        )
    else:
        causes += _reference(channel, "spec.channel")
        if text(channel, "namespace"):
            causes.append(
                Cause(
                    Because.FORBIDDEN,
                    "spec.channel.namespace",
                    "the Channel must be in the same namespace; remove this field",
                )
            )
    given = [name for name in ("subscriber", "reply") if child(subscription, "spec", name)]
    if not given:
        causes.append(Cause(Because.REQUIRED, "spec.subscriber", "at least one of subscriber and reply"))
    for name in given:
        causes += _destination(child(subscription, "spec", name), f"spec.{name}")
    return causes + _fixed(subscription, old, ("spec", "channel"))


def _channelable(channel: Object) -> list[Cause]:
    return check_delivery(channel) + extensions.duplicate_window_ms(channel)[1]


def _template(channel: Object) -> list[Cause]:
    template = child(channel, "spec", "channelTemplate")
    return [
        Cause(Because.REQUIRED, f"spec.channelTemplate.{name}", "")
        for name in ("apiVersion", "kind")
        if not text(template, name)
    ]


def _service(service: Object) -> list[Cause]:
    """The external name becomes the host of URLs, so it must be a host name."""
    name, is_external = text(service, "spec", "externalName"), text(service, "spec", "type") == "ExternalName"
    if (name or is_external) and not is_dns_name(name):
        return [
            Cause(
                Because.INVALID,
                "spec.externalName",
                f'"{name[:80]}": must be a DNS name, for example host.example.com',
            )
        ]
    return []


def _definition(definition: Object, old: Object | None) -> list[Cause]:
    spec = child(definition, "spec")
    wanted = f"{text(spec, 'names', 'plural')}.{text(spec, 'group')}"
    causes: list[Cause] = []
    if name_of(definition) != wanted:
        causes.append(
            Cause(
                Because.INVALID,
                "metadata.name",
                f'"{name_of(definition)[:80]}": must be spec.names.plural+"."+spec.group',
            )
        )
    if sum(at(version, "storage") is True for version in entries(spec, "versions")) != 1:
        causes.append(
            Cause(Because.INVALID, "spec.versions", "must have exactly one version marked as storage version")
        )
    fixed = (("spec", "group"), ("spec", "scope"), ("spec", "names", "kind"), ("spec", "names", "plural"))
    return causes + [cause for path in fixed for cause in _fixed(definition, old, path)]


def check_delivery(object_: Object) -> list[Cause]:
    """Check the durations and the dead letter sink in `spec.delivery`. Spec: "DeliverySpec"."""
    delivery = child(object_, "spec", "delivery")
    causes: list[Cause] = []
    for name in _DURATIONS:
        written = at(delivery, name)
        if isinstance(written, str):
            try:
                milliseconds = duration_ms(written)
            except ValueError as error:
                causes.append(Cause(Because.INVALID, f"spec.delivery.{name}", f'"{written[:80]}": {error}'))
                continue
            if name in {"timeout", "backoffMax"} and not milliseconds:
                causes.append(
                    Cause(Because.INVALID, f"spec.delivery.{name}", f'"{written}": must be more than zero')
                )
    if at(delivery, "deadLetterSink") is not None:
        causes += _destination(child(delivery, "deadLetterSink"), "spec.delivery.deadLetterSink")
    return causes


def _destination(destination: Object, path: str) -> list[Cause]:
    """Spec: "Destination Resolution"."""
    reference, uri = at(destination, "ref"), text(destination, "uri")
    if reference is None and not uri:
        return [Cause(Because.REQUIRED, path, "expected at least one, got none: ref, uri")]
    causes = _reference(child(reference), f"{path}.ref") if isinstance(reference, Mapping) else []
    if uri:
        words = _wrong_uri(uri, relative=reference is not None)
        causes += [Cause(Because.INVALID, f"{path}.uri", f'"{uri[:80]}": {words}')] if words else []
    return causes


def _wrong_uri(uri: str, *, relative: bool) -> str:
    if len(uri) > URL_CHARACTERS_MAX or re.search(r"[\x00-\x20\x7f]", uri):
        return f"must have at most {URL_CHARACTERS_MAX} characters and no spaces"
    try:
        parts = urlsplit(uri)
        # `urlsplit` checks the port only when it is read.
        _ = parts.port
    except ValueError as error:
        return f"not a URL: {error}"
    if not parts.scheme and not parts.netloc:
        return "" if relative else "a relative URI is only allowed together with ref"
    if parts.scheme not in {"http", "https"} and not (relative and not parts.scheme):
        return "the scheme must be http or https"
    # `http:///path` has a scheme and an empty host.
    return "" if parts.hostname else "it has no host"


def _reference(reference: Object, path: str) -> list[Cause]:
    """Spec: "KReference"."""
    return [
        Cause(Because.REQUIRED, below(path, name), "")
        for name in ("apiVersion", "kind", "name")
        if not text(reference, name)
    ]


def _fixed(object_: Object, old: Object | None, path: tuple[str, ...]) -> list[Cause]:
    if old is None or same(at(object_, *path), at(old, *path)):
        return []
    return [_changed(".".join(path), at(object_, *path))]


def _changed(path: str, value: object) -> Cause:
    written = f'"{value}": ' if isinstance(value, str) else ""
    return Cause(Because.INVALID, path, f"{written}{_IMMUTABLE}")
