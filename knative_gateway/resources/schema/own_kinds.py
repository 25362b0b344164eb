"""The OpenAPI v3 schemas of our own kinds, built from the specification's tables. Spec:
knative-eventing-test-spec, "Detailed Resources".

Field names are the texts'; beyond them are those that Knative's current releases have and this gateway serves
(`timeout`, `retryAfterMax`, `format`, `filters`), and `delivery.backoffMax`, which its users ask for.
"""

from collections.abc import Mapping
from typing import Final

from knative_gateway.resources.objects import Object
from knative_gateway.resources.schema.checking import INT_OR_STRING, KEEP_UNKNOWN
from knative_gateway.resources.schema.fields import LIST_KEYS, LIST_TYPE


def thing(
    description: str = "", *, required: tuple[str, ...] = (), **properties: Object
) -> dict[str, object]:
    """The schema of an object with these fields; a name that is Python's has an underscore behind it."""
    return record(
        {name.rstrip("_"): each for name, each in properties.items()}, description, required=required
    )


def record(
    properties: Mapping[str, Object], description: str = "", *, required: tuple[str, ...] = ()
) -> dict[str, object]:
    """The schema of an object with these fields."""
    schema: dict[str, object] = {"type": "object", "properties": dict(properties)}
    return {
        **schema,
        **({"description": description} if description else {}),
        **({"required": list(required)} if required else {}),
    }


def string(description: str = "", **bounds: object) -> dict[str, object]:
    """The schema of a text."""
    return {"type": "string", **({"description": description} if description else {}), **bounds}


def array(items: Object, description: str = "") -> dict[str, object]:
    """The schema of a list."""
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def merged_by(key: str = "") -> dict[str, object]:
    """How strategic merge patches treat a list, for clients that make them: by the key of its objects, or as
    a set of texts.
    """
    return {"x-kubernetes-patch-strategy": "merge", **({"x-kubernetes-patch-merge-key": key} if key else {})}


def table(values: Object, description: str = "") -> dict[str, object]:
    """The schema of a map from any name to values of one kind."""
    return {
        "type": "object",
        "additionalProperties": values,
        **({"description": description} if description else {}),
    }


ANYTHING: Final[Object] = {"type": "object", KEEP_UNKNOWN: True}
INT32: Final[Object] = {"type": "integer", "format": "int32"}
INT64: Final[Object] = {"type": "integer", "format": "int64"}

KREFERENCE: Final = thing(
    "A reference to an object.",
    apiVersion=string("apiVersion of the target; required."),
    kind=string("Kind of the target; required."),
    name=string("Name of the target; required."),
    namespace=string("Namespace of the target; default: the same namespace."),
)
DESTINATION: Final = thing(
    "Where events are sent: `uri` is taken relative to the address of `ref` if both are there.",
    ref=KREFERENCE,
    uri=string("An http or https URL; relative only beside ref."),
)
DELIVERY: Final = thing(
    "How events are delivered. On a Trigger or Subscription it replaces the Broker's or Channel's as a"
    " whole.",
    deadLetterSink={**DESTINATION, "description": "Where events go that cannot be delivered."},
    retry={
        **INT32,
        "minimum": 0,
        "description": "Retries after the first attempt, before the event goes to the dead letter sink.",
    },
    backoffPolicy=string(
        "How waits grow: linear d·n, exponential d·2^(n-1).", enum=["linear", "exponential"]
    ),
    backoffDelay=string("The first wait, an ISO 8601 duration such as PT0.5S."),
    backoffMax=string("The longest wait between two attempts, an ISO 8601 duration."),
    timeout=string("Of one request, an ISO 8601 duration; more than zero."),
    retryAfterMax=string(
        "The longest Retry-After of a 429 or 503 that is heeded, an ISO 8601 duration; PT0S: none is."
    ),
    format_=string(
        "The content mode of deliveries: binary (default) or json, which is structured.",
        enum=["binary", "json"],
    ),
)
SUBSCRIBERS: Final = array(
    thing(
        uid=string(),
        generation=INT64,
        subscriberUri=string(),
        replyUri=string(),
        delivery=DELIVERY,
        name=string(),
    ),
    "The Subscriptions of this Channel; filled by the server.",
)
ATTRIBUTES: Final = table(string(), "Attribute names and what they must be; an empty value: any.")
FILTER: Final = thing("Exact values that attributes must have, all of them.", attributes=ATTRIBUTES)
_DIALECT: Final = thing(
    "One dialect.",
    exact=table(string(), "Attributes that have exactly these values."),
    prefix=table(string(), "Attributes whose values begin so."),
    suffix=table(string(), "Attributes whose values end so."),
    all=array(ANYTHING, "Filters that must all match."),
    any=array(ANYTHING, "Filters of which one must match."),
    not_={**ANYTHING, "description": "A filter that must not match."},
    cesql=string("A CloudEvents SQL expression that must be true."),
    sql=string("The same as cesql, as the CloudEvents Subscriptions API calls it."),
)
# A dialect that nobody knows is refused by the rules: left out, it would match everything.
FILTERS: Final = array(
    {**_DIALECT, KEEP_UNKNOWN: True}, "Filters that must all match; used instead of filter unless empty."
)
CONDITIONS: Final = array(
    thing(
        required=("type", "status"),
        type=string(),
        status=string(),
        severity=string(),
        reason=string(),
        message=string(),
        lastTransitionTime=string(),
    ),
    "What is the matter, by type.",
)
ADDRESS: Final = thing("Where events are sent.", url=string(), name=string())
HISTORY: Final = array(ANYTHING, "The latest failed deliveries, the newest first.")
DELIVERIES: Final = {**ANYTHING, "description": "Counters of what was delivered."}


def status(**fields: Object) -> dict[str, object]:
    """The status of one of our kinds."""
    common: dict[str, Object] = {
        "observedGeneration": INT64,
        "conditions": CONDITIONS,
        "annotations": table(string()),
    }
    return record({**common, **fields}, "Set by the server.")


BROKER: Final = thing(
    "An address that events are sent to, and that forwards them to its Triggers.",
    spec=thing(
        config={
            **KREFERENCE,
            "description": "A ConfigMap with partitions, retention and delivery of this Broker; immutable.",
        },
        delivery=DELIVERY,
    ),
    status=status(address=ADDRESS, addresses=array(ADDRESS), deadLetterSinkUri=string()),
)
TRIGGER: Final = thing(
    "What of a Broker's events goes to a subscriber.",
    spec=thing(
        broker=string("The Broker's name; required, immutable."),
        filter=FILTER,
        filters=FILTERS,
        subscriber=DESTINATION,
        delivery=DELIVERY,
    ),
    status=status(subscriberUri=string(), deadLetterSinkUri=string(), deliveries=DELIVERIES, history=HISTORY),
)
_CHANNELABLE: Final = status(
    address=ADDRESS,
    addresses=array(ADDRESS),
    subscribers=array(
        thing(
            uid=string(),
            generation=INT64,
            observedGeneration=INT64,
            ready=string(),
            message=string(),
            name=string(),
        )
    ),
    deadLetterSinkUri=string(),
    channel=KREFERENCE,
)
CHANNEL: Final = thing(
    "An address that events are sent to, and that forwards them to its Subscriptions.",
    spec=thing(
        channelTemplate={
            **thing(apiVersion=string(), kind=string(), spec=ANYTHING),
            "description": "How the channel is made: its spec may have partitions and retention; immutable.",
        },
        delivery=DELIVERY,
        subscribers=SUBSCRIBERS,
    ),
    status=_CHANNELABLE,
)
IN_MEMORY_CHANNEL: Final = thing(
    "A Channel under the name of Knative's simplest one; as durable as every other here.",
    spec=thing(delivery=DELIVERY, subscribers=SUBSCRIBERS),
    status=_CHANNELABLE,
)
SUBSCRIPTION: Final = thing(
    "Whom a Channel's events go to.",
    spec=thing(
        channel={**KREFERENCE, "description": "The Channel in the same namespace; required, immutable."},
        subscriber=DESTINATION,
        reply={**DESTINATION, "description": "Where events go that the subscriber replies with."},
        delivery=DELIVERY,
    ),
    status=status(
        physicalSubscription=thing(subscriberUri=string(), replyUri=string(), deadLetterSinkUri=string()),
        deliveries=DELIVERIES,
        history=HISTORY,
    ),
)
NAMESPACE: Final = thing(
    "A room for names.",
    spec=thing(finalizers=array(string())),
    status=thing(phase=string(), conditions=CONDITIONS),
)
CONFIG_MAP: Final = thing(
    "Settings.", data=table(string()), binaryData=table(string()), immutable={"type": "boolean"}
)
SERVICE: Final = thing(
    "A name that destinations may refer to.",
    spec={
        **thing(
            type=string(),
            externalName=string("The host that the name stands for, with type ExternalName."),
            clusterIP=string(),
            ports={
                **array(
                    {
                        **thing(
                            name=string(),
                            port=INT32,
                            protocol=string(default="TCP"),
                            targetPort={INT_OR_STRING: True},
                        ),
                        KEEP_UNKNOWN: True,
                    }
                ),
                LIST_TYPE: "map",
                LIST_KEYS: ["port", "protocol"],
                **merged_by("port"),
            },
        ),
        KEEP_UNKNOWN: True,
    },
    status=ANYTHING,
)
_TIME: Final = {**string(), "nullable": True}
EVENT: Final[Object] = {
    **record(
        {
            "involvedObject": ANYTHING,
            "reason": string(),
            "message": string(),
            "type": string(),
            "count": INT32,
            "firstTimestamp": _TIME,
            "lastTimestamp": _TIME,
            "eventTime": _TIME,
        },
        "What happened to an object, and why.",
    ),
    KEEP_UNKNOWN: True,
}
DEFINITION: Final = thing(
    "Declares a kind of objects.",
    required=("spec",),
    spec={
        **thing(
            required=("group", "names", "scope", "versions"),
            group=string(minLength=1),
            scope=string(enum=["Namespaced", "Cluster"]),
            names={
                **thing(
                    required=("kind", "plural"),
                    kind=string(minLength=1),
                    plural=string(minLength=1),
                    singular=string(),
                    listKind=string(),
                    shortNames=array(string()),
                    categories=array(string()),
                ),
            },
            versions=array(
                {
                    **thing(required=("name", "served", "storage"), name=string(minLength=1)),
                    KEEP_UNKNOWN: True,
                }
            ),
        ),
        KEEP_UNKNOWN: True,
    },
    status=ANYTHING,
)
