"""DeliverySpecs as values, and the rule which DeliverySpec is used.

If a Trigger or Subscription specifies any delivery option, all options of its Broker or Channel are ignored.

Spec: knative-eventing-test-spec, "DeliverySpec", Broker and Channel `delivery`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from knative_gateway.addressing import Addressing, Unresolved, without_credentials
from knative_gateway.ports import BackoffPolicy, Delivery
from knative_gateway.resources.conditions import Condition, is_false, is_true
from knative_gateway.resources.durations import duration_ms
from knative_gateway.resources.objects import EMPTY, Object, at, child, number, put, text

DEAD_LETTER_SINK_RESOLVED: Final = "DeadLetterSinkResolved"
NOT_CONFIGURED: Final = is_true(
    DEAD_LETTER_SINK_RESOLVED,
    "DeadLetterSinkNotConfigured",
    "no dead letter sink is configured",
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A DeliverySpec and its dead letter sink. `uri`: None if no sink is specified; empty if it cannot be
    resolved.
    """

    spec: Object
    uri: str | None
    condition: Condition

    @property
    def is_usable(self) -> bool:
        """Whether events can be delivered. False: the dead letter sink is not valid, so failed events would
        be lost.
        """
        return self.uri != ""

    def status(self) -> dict[str, object]:
        """Return `deadLetterSinkUri` for the status, if a sink is specified."""
        return {} if self.uri is None else {"deadLetterSinkUri": without_credentials(self.uri)}

    def delivery(self, addressing: Addressing) -> Delivery:
        """Return the delivery options for the data plane. Requires `is_usable`."""
        assert self.is_usable
        spec = self.spec
        return Delivery(
            retry=number(spec, "retry"),
            backoff_policy=BackoffPolicy.LINEAR
            if text(spec, "backoffPolicy") == BackoffPolicy.LINEAR
            else BackoffPolicy.EXPONENTIAL,
            backoff_delay_ms=_ms(spec, "backoffDelay") or 0,
            backoff_max_ms=_ms(spec, "backoffMax"),
            timeout_ms=_ms(spec, "timeout"),
            retry_after_max_ms=_ms(spec, "retryAfterMax"),
            dead_letter_url=addressing.reached(self.uri) if self.uri else None,
            structured=text(spec, "format") == "json",
        )

    def as_uri(self) -> dict[str, object]:
        """Return the spec with its dead letter sink as a URI.

        Spec: "duckv1.SubscriberSpec": deadLetterSink SHOULD use the uri form.
        """
        return (
            put(self.spec, ("deadLetterSink",), {"uri": without_credentials(self.uri)})
            if self.uri
            else dict(self.spec)
        )


def resolved(spec: Object, namespace: str, addressing: Addressing) -> Resolved:
    """Resolve a DeliverySpec of an object in this namespace."""
    sink = child(spec, "deadLetterSink")
    if not sink:
        return Resolved(spec, None, NOT_CONFIGURED)
    uri = addressing.resolve(sink, namespace)
    if isinstance(uri, Unresolved):
        return Resolved(spec, "", is_false(DEAD_LETTER_SINK_RESOLVED, uri.reason, uri.message))
    return Resolved(spec, uri, is_true(DEAD_LETTER_SINK_RESOLVED))


def effective(object_: Object, namespace: str, parent: Resolved | None, addressing: Addressing) -> Resolved:
    """Return the DeliverySpec that is used for a Trigger or Subscription."""
    own = at(object_, "spec", "delivery")
    if isinstance(own, Mapping) and own:
        return resolved(own, namespace, addressing)
    return parent or resolved(EMPTY, namespace, addressing)


def _ms(spec: Object, name: str) -> int | None:
    """Return a duration in milliseconds; None if it is not specified, or not valid, which admission
    refuses.
    """
    written = text(spec, name)
    try:
        return duration_ms(written) if written else None
    except ValueError:
        return None
