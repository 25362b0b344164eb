"""The kinds of objects that are served: the built-in ones, and those that stored CustomResourceDefinitions
declare.

A `Kind` is one served version of a kind. The store identifies objects by group and kind, so every served
version shows the same objects.

Spec: Kubernetes, API discovery.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.resources.objects import Object, child, entries, number, text
from knative_gateway.resources.schema import own_kinds
from knative_gateway.resources.schema.checking import KEEP_UNKNOWN

EVENTING: Final = "eventing.knative.dev"
MESSAGING: Final = "messaging.knative.dev"
EXTENSIONS: Final = "apiextensions.k8s.io"
CORE: Final = ""
GATEWAY: Final = "gateway.knative.dev"
"""The group of internal objects. The API does not serve them."""
LOG: Final = "Log"
"""An internal object: it records which Broker or Channel owns a log."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `path` is a simple JSONPath. With a priority above 0, only `-o wide` shows the
    column.
    """

    name: str
    type: str
    path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One version of a kind. `schema` is the OpenAPI v3 schema of everything except apiVersion, kind and
    metadata.
    """

    group: str
    version: str
    kind: str
    plural: str
    schema: Object
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = True
    """Whether `status` is a subresource: then other writes do not change it."""
    columns: tuple[Column, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the definition. Clients use them to find the kinds of sources and channels."""
    singular: str = ""
    list_kind: str = ""
    storage: bool = True
    """Whether objects are stored in this version."""

    @property
    def api_version(self) -> str:
        """`group/version`, or only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name as messages show it: `triggers.eventing.knative.dev`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Registry:
    """All served kinds. Immutable."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds: Final = tuple(kinds)
        self._by_plural: Final = {(kind.group, kind.version, kind.plural): kind for kind in self.kinds}
        self._by_kind: Final = {(kind.group, kind.version, kind.kind): kind for kind in self.kinds}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind with the names of a request path."""
        return self._by_plural.get((group, version, plural))

    def of(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an object or a reference names in `apiVersion` and `kind`."""
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def versions(self) -> dict[str, list[str]]:
        """Return the served versions of each group except the core, the preferred version first."""
        found: dict[str, list[str]] = {}
        for kind in self.kinds:
            if kind.group and kind.version not in found.setdefault(kind.group, []):
                found[kind.group].append(kind.version)
        return found

    def of_version(self, group: str, version: str) -> Sequence[Kind]:
        """Return the kinds of one group and version."""
        return [kind for kind in self.kinds if (kind.group, kind.version) == (group, version)]

    def stored(self) -> Sequence[Kind]:
        """Return each kind once, in the version in which its objects are stored."""
        return [kind for kind in self.kinds if kind.storage]

    def with_definitions(self, definitions: Iterable[Object]) -> "Registry":
        """Return this registry with the kinds that the definitions declare. A kind that exists already is not
        replaced.
        """
        taken = {(kind.group, kind.plural) for kind in self.kinds}
        declared = [kind for definition in definitions for kind in declared_by(definition)]
        return Registry([*self.kinds, *(kind for kind in declared if (kind.group, kind.plural) not in taken)])


def declared_by(definition: Object) -> list[Kind]:
    """Return the served versions that a CustomResourceDefinition declares, the storage version first."""
    spec = child(definition, "spec")
    names = child(spec, "names")
    kind = text(names, "kind")
    found = [
        Kind(
            group=text(spec, "group"),
            version=text(version, "name"),
            kind=kind,
            plural=text(names, "plural"),
            schema=_schema_of(version),
            short_names=_texts(names, "shortNames"),
            categories=_texts(names, "categories"),
            namespaced=text(spec, "scope") != "Cluster",
            status="status" in child(version, "subresources"),
            columns=tuple(_column(each) for each in entries(version, "additionalPrinterColumns")) or (AGE,),
            labels={
                name: value
                for name, value in child(definition, "metadata", "labels").items()
                if isinstance(value, str)
            },
            singular=text(names, "singular") or kind.lower(),
            list_kind=text(names, "listKind") or f"{kind}List",
            storage=child(version).get("storage") is True,
        )
        for version in entries(spec, "versions")
        if child(version).get("served") is True
    ]
    return sorted(found, key=lambda each: not each.storage)


def _schema_of(version: object) -> Object:
    """Return the declared schema without the fields that every object has."""
    schema = child(version, "schema", "openAPIV3Schema") or {"type": "object", KEEP_UNKNOWN: True}
    common = {"apiVersion", "kind", "metadata"}
    required = [name for name in entries(schema, "required") if name not in common]
    properties = {name: each for name, each in child(schema, "properties").items() if name not in common}
    return {**schema, "properties": properties, "required": required}


def _texts(value: Object, name: str) -> tuple[str, ...]:
    return tuple(each for each in entries(value, name) if isinstance(each, str))


def _column(column: object) -> Column:
    return Column(
        name=text(column, "name"),
        type=text(column, "type"),
        path=text(column, "jsonPath"),
        description=text(column, "description"),
        format=text(column, "format"),
        priority=number(column, "priority"),
    )


def definition(kind: Kind, created: str) -> dict[str, object]:
    """Return a built-in kind as the CustomResourceDefinition that Knative installs: clients look for its
    labels.

    `created` is a timestamp (RFC 3339).
    """
    columns = [
        {
            "name": each.name,
            "type": each.type,
            "jsonPath": each.path,
            **({"priority": each.priority} if each.priority else {}),
        }
        for each in kind.columns
    ]
    names = {"kind": kind.kind, "listKind": kind.list_kind, "plural": kind.plural, "singular": kind.singular}
    names_full: dict[str, object] = {
        **names,
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": kind.schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": f"{EXTENSIONS}/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.full_name,
            "uid": f"built-in-{kind.full_name}",
            "creationTimestamp": created,
            "labels": dict(kind.labels),
        },
        "spec": {"group": kind.group, "names": names_full, "scope": "Namespaced", "versions": [version]},
        "status": established(names_full, [kind.version], created),
    }


def established(names: Object, versions: Sequence[str], since: str) -> dict[str, object]:
    """Return the status of a CustomResourceDefinition that is served."""
    conditions = [
        {
            "type": "NamesAccepted",
            "status": "True",
            "reason": "NoConflicts",
            "message": "no conflicts found",
            "lastTransitionTime": since,
        },
        {
            "type": "Established",
            "status": "True",
            "reason": "InitialNamesAccepted",
            "message": "the kind is served",
            "lastTransitionTime": since,
        },
    ]
    return {"acceptedNames": dict(names), "conditions": conditions, "storedVersions": list(versions)}


def _ready(path: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{path}'


AGE: Final = Column("Age", "date", ".metadata.creationTimestamp", "Time since the object was created")
_READY: Final = (
    AGE,
    Column("Ready", "string", _ready("status")),
    Column("Reason", "string", _ready("reason")),
)
_DELIVERIES: Final = tuple(
    Column(title, "integer", f".status.deliveries.{name}", words, priority=1)
    for title, name, words in (
        ("Delivered", "delivered", "Successful deliveries"),
        ("Lag", "lag", "Events after the subscriber's position"),
        ("Failed", "failedAttempts", "Requests that failed, retries included"),
        ("Dead_Lettered", "deadLettered", "Events that went to the dead letter sink"),
        ("Dropped", "dropped", "Events that were neither delivered nor dead-lettered"),
        ("Removed", "removed", "Events that retention removed before they were delivered"),
    )
)
_URL: Final = Column("URL", "string", ".status.address.url")
_CLASS: Final = Column(
    "Class", "string", r".metadata.annotations.eventing\.knative\.dev/broker\.class", priority=1
)
_ADDRESSABLE: Final = {"duck.knative.dev/addressable": "true"}
_SUBSCRIBABLE: Final = {**_ADDRESSABLE, "messaging.knative.dev/subscribable": "true"}


def _knative(
    group: str,
    kind: str,
    schema: Object,
    columns: tuple[Column, ...],
    *short: str,
    labels: Mapping[str, str] | None = None,
) -> Kind:
    area = group.partition(".")[0]
    return Kind(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        schema=schema,
        short_names=short,
        categories=("all", "knative", area, "channel")
        if labels is _SUBSCRIBABLE
        else ("all", "knative", area),
        columns=columns,
        labels=labels or {},
        singular=kind.lower(),
        list_kind=f"{kind}List",
    )


def _core(
    kind: str,
    schema: Object,
    columns: tuple[Column, ...],
    *short: str,
    namespaced: bool = True,
    status: bool = False,
) -> Kind:
    return Kind(
        group=CORE,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        schema=schema,
        short_names=short,
        namespaced=namespaced,
        status=status,
        columns=columns,
        singular=kind.lower(),
        list_kind=f"{kind}List",
    )


_EVENT_COLUMNS: Final = (
    Column("Last Seen", "date", ".lastTimestamp"),
    Column("Type", "string", ".type"),
    Column("Reason", "string", ".reason"),
    Column("Object", "string", ".involvedObject.kind/.involvedObject.name"),
    Column("Message", "string", ".message"),
    Column("Count", "integer", ".count", priority=1),
)
_SERVICE_COLUMNS: Final = (
    Column("Type", "string", ".spec.type"),
    Column("Cluster-IP", "string", ".spec.clusterIP"),
    Column("External-IP", "string", ".spec.externalName"),
    Column("Port(s)", "string", ".spec.ports[*].port"),
    AGE,
)
_DEFINITION_KIND: Final = Kind(
    EXTENSIONS,
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    own_kinds.DEFINITION,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    namespaced=False,
    columns=(Column("Created At", "string", ".metadata.creationTimestamp"),),
    singular="customresourcedefinition",
    list_kind="CustomResourceDefinitionList",
)
_TRIGGER_COLUMNS: Final = (
    Column("Broker", "string", ".spec.broker"),
    Column("Subscriber_URI", "string", ".status.subscriberUri"),
    *_READY,
    *_DELIVERIES,
    Column("Dead_Letter_Sink_URI", "string", ".status.deadLetterSinkUri", priority=1),
)
_SUBSCRIPTION_COLUMNS: Final = (
    *_READY,
    *_DELIVERIES,
    Column("Channel", "string", ".spec.channel.name", priority=1),
    Column("Channel_Kind", "string", ".spec.channel.kind", priority=1),
    *(
        Column(title, "string", f".status.physicalSubscription.{name}", priority=1)
        for title, name in (
            ("Subscriber_URI", "subscriberUri"),
            ("Reply_URI", "replyUri"),
            ("Dead_Letter_Sink_URI", "deadLetterSinkUri"),
        )
    ),
)
OURS: Final = (
    _knative(EVENTING, "Broker", own_kinds.BROKER, (_URL, *_READY, _CLASS), labels=_ADDRESSABLE),
    _knative(EVENTING, "Trigger", own_kinds.TRIGGER, _TRIGGER_COLUMNS),
    _knative(MESSAGING, "Channel", own_kinds.CHANNEL, (_URL, *_READY), "ch", labels=_SUBSCRIBABLE),
    _knative(
        MESSAGING,
        "InMemoryChannel",
        own_kinds.IN_MEMORY_CHANNEL,
        (_URL, *_READY),
        "imc",
        labels=_SUBSCRIBABLE,
    ),
    _knative(MESSAGING, "Subscription", own_kinds.SUBSCRIPTION, _SUBSCRIPTION_COLUMNS, "sub"),
)
"""The kinds of Knative that the gateway implements."""
BUILT_IN: Final = Registry(
    [
        *OURS,
        _core(
            "Namespace",
            own_kinds.NAMESPACE,
            (Column("Status", "string", ".status.phase"), AGE),
            "ns",
            namespaced=False,
            status=True,
        ),
        _core("ConfigMap", own_kinds.CONFIG_MAP, (Column("Data", "integer", "count(.data)"), AGE), "cm"),
        _core("Service", own_kinds.SERVICE, _SERVICE_COLUMNS, "svc", status=True),
        _core("Event", own_kinds.EVENT, _EVENT_COLUMNS, "ev"),
        _DEFINITION_KIND,
    ]
)
"""The kinds that are served without any stored CustomResourceDefinition."""
