"""The OpenAPI v3 schemas of the built-in kinds, built from the tables of the specification.

The specification names the fields. Four more are served because current Knative releases have them
(`timeout`, `retryAfterMax`, `format`, `filters`); `delivery.backoffMax` is an extension of this gateway.

Spec: knative-eventing-test-spec, "Detailed Resources".
"""

from collections.abc import Mapping
from typing import Final

from knative_gateway.resources.objects import Object
from knative_gateway.resources.schema.checking import INT_OR_STRING, KEEP_UNKNOWN
from knative_gateway.resources.schema.fields import LIST_KEYS, LIST_TYPE


def thing(
    description: str = "", *, required: tuple[str, ...] = (), **properties: Object
) -> dict[str, object]:
    """Return the schema of an object with these fields.

    `not_` stands for the field `not` (a Python keyword).
    """
    return record(
        {name.rstrip("_"): each for name, each in properties.items()}, description, required=required
    )


def record(
    properties: Mapping[str, Object], description: str = "", *, required: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return the schema of an object with these fields."""
    schema: dict[str, object] = {"type": "object", "properties": dict(properties)}
    return {
        **schema,
        **({"description": description} if description else {}),
        **({"required": list(required)} if required else {}),
    }


def string(description: str = "", **bounds: object) -> dict[str, object]:
    """Return the schema of a string."""
    return {"type": "string", **({"description": description} if description else {}), **bounds}


def array(items: Object, description: str = "") -> dict[str, object]:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def merged_by(key: str = "") -> dict[str, object]:
    """Return the OpenAPI extensions that tell clients how a strategic merge patch merges a list.

    With a key, objects with the same value of that key are merged; without one, the list is merged as a set.
    """
    return {"x-kubernetes-patch-strategy": "merge", **({"x-kubernetes-patch-merge-key": key} if key else {})}


def table(values: Object, description: str = "") -> dict[str, object]:
    """Return the schema of a map from any name to values of one schema."""
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
    "Where events are sent. If both are set, `uri` is resolved against the address of `ref`.",
    ref=KREFERENCE,
    uri=string("An http or https URL; relative only together with ref."),
)
DELIVERY: Final = thing(
    "How events are delivered. On a Trigger or Subscription it replaces the Broker's or Channel's as a"
    " whole.",
    deadLetterSink={**DESTINATION, "description": "The destination of events that cannot be delivered."},
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
    timeout=string("The time limit of one request: an ISO 8601 duration, more than zero."),
    retryAfterMax=string(
        "The longest Retry-After of a 429 or 503 that is honored, an ISO 8601 duration; PT0S ignores "
        "the header."
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
ATTRIBUTES: Final = table(
    string(), "Attribute names and their required values; an empty value matches any value."
)
FILTER: Final = thing("Attributes that must all have exactly these values.", attributes=ATTRIBUTES)
_DIALECT: Final = thing(
    "One dialect.",
    exact=table(string(), "Attributes that have exactly these values."),
    prefix=table(string(), "Attributes whose values begin with these texts."),
    suffix=table(string(), "Attributes whose values end with these texts."),
    all=array(ANYTHING, "Filters that must all match."),
    any=array(ANYTHING, "Filters of which one must match."),
    not_={**ANYTHING, "description": "A filter that must not match."},
    cesql=string("A CloudEvents SQL expression that must be true."),
    sql=string("The same as cesql, as the CloudEvents Subscriptions API calls it."),
)
# Unknown dialects are kept here so that validation can refuse them. If they were pruned, the filter would
# match every event.
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
    "The conditions of the object, sorted by type.",
)
ADDRESS: Final = thing("Where events are sent.", url=string(), name=string())
HISTORY: Final = array(ANYTHING, "The latest failed deliveries, the newest first.")
DELIVERIES: Final = {**ANYTHING, "description": "Counters of deliveries."}


def status(**fields: Object) -> dict[str, object]:
    """Return the schema of the status of a built-in kind."""
    common: dict[str, Object] = {
        "observedGeneration": INT64,
        "conditions": CONDITIONS,
        "annotations": table(string()),
    }
    return record({**common, **fields}, "Set by the server.")


BROKER: Final = thing(
    "Receives events at an address and forwards them to its Triggers.",
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
    "Sends the events of a Broker that match a filter to a subscriber.",
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
    "Receives events at an address and forwards them to its Subscriptions.",
    spec=thing(
        channelTemplate={
            **thing(apiVersion=string(), kind=string(), spec=ANYTHING),
            "description": "The kind of channel. Its spec may set partitions and retention; immutable.",
        },
        delivery=DELIVERY,
        subscribers=SUBSCRIBERS,
    ),
    status=_CHANNELABLE,
)
IN_MEMORY_CHANNEL: Final = thing(
    "A Channel under the name of Knative's in-memory channel. Here it is as durable as any other Channel.",
    spec=thing(delivery=DELIVERY, subscribers=SUBSCRIBERS),
    status=_CHANNELABLE,
)
SUBSCRIPTION: Final = thing(
    "Sends the events of a Channel to a subscriber.",
    spec=thing(
        channel={**KREFERENCE, "description": "The Channel in the same namespace; required, immutable."},
        subscriber=DESTINATION,
        reply={**DESTINATION, "description": "The destination of the subscriber's replies."},
        delivery=DELIVERY,
    ),
    status=status(
        physicalSubscription=thing(subscriberUri=string(), replyUri=string(), deadLetterSinkUri=string()),
        deliveries=DELIVERIES,
        history=HISTORY,
    ),
)
NAMESPACE: Final = thing(
    "A scope for the names of objects.",
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
        "Something that happened to an object, with the reason.",
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
