"""The annotations that enable extensions of this gateway. All are optional.

On a Trigger or Subscription:

  knative-gateway/paused          "true": deliveries stop; new events wait in the log
  knative-gateway/start           where a new subscriber begins: new (default), earliest, time=RFC3339,
                                  offset=PARTITION=OFFSET,…
  knative-gateway/order           unordered (default), key (events of one key in order), ordered (events of
                                  one partition in order)
  knative-gateway/in-flight-max   the maximum number of deliveries in flight
  knative-gateway/per-second-max  the maximum number of deliveries that begin in one second
  kafka.eventing.knative.dev/delivery.order   ordered or unordered, the annotation of Knative's Kafka Broker;
                                  knative-gateway/order takes precedence

On a Broker or Channel:

  knative-gateway/duplicate-window  an ISO 8601 duration. An event with the source and id of an earlier event
                                  within this time is accepted and not stored again
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from knative_gateway.ports import Order, Start
from knative_gateway.resources.durations import duration_ms
from knative_gateway.resources.objects import Object, annotation, child, moment_ms, namespace_of, text
from knative_gateway.resources.refusals import Because, Cause

PREFIX: Final = "knative-gateway/"
PAUSED: Final = f"{PREFIX}paused"
START: Final = f"{PREFIX}start"
ORDER: Final = f"{PREFIX}order"
IN_FLIGHT_MAX: Final = f"{PREFIX}in-flight-max"
PER_SECOND_MAX: Final = f"{PREFIX}per-second-max"
DUPLICATE_WINDOW: Final = f"{PREFIX}duplicate-window"
DEPENDENCY: Final = "knative.dev/dependency"
INJECTION: Final = "eventing.knative.dev/injection"
KAFKA_ORDER: Final = "kafka.eventing.knative.dev/delivery.order"
IN_FLIGHT_LIMIT: Final = 1024
_OF_SUBSCRIBERS: Final = frozenset({PAUSED, START, ORDER, IN_FLIGHT_MAX, PER_SECOND_MAX})
_OF_SOURCES: Final = frozenset({DUPLICATE_WINDOW})
_START: Final = r"[0-9]{1,5}=(?:[0-9]{1,20}|@earliest|@latest)"
_OFFSETS: Final = re.compile(rf"{_START}(?:,{_START})*")


@dataclass(frozen=True, slots=True)
class Extensions:
    """The values of a subscriber's annotations."""

    paused: bool = False
    start: Start = Start.NEW
    start_at: str | None = None
    order: Order = Order.UNORDERED
    in_flight_max: int | None = None
    per_second_max: float | None = None


def of_subscriber(object_: Object) -> tuple[Extensions, list[Cause]]:
    """Return the extensions of a Trigger or Subscription, and the errors. An invalid annotation has its
    default.
    """
    causes = _unknown(object_, _OF_SUBSCRIBERS)
    start, start_at = _start(object_, causes)
    extensions = Extensions(
        paused=_one_of(object_, PAUSED, ("false", "true"), causes) == "true",
        start=start,
        start_at=start_at,
        order=_order(object_, causes),
        in_flight_max=_in_flight_max(object_, causes),
        per_second_max=_per_second_max(object_, causes),
    )
    return extensions, causes


def duplicate_window_ms(object_: Object) -> tuple[int | None, list[Cause]]:
    """Return the duplicate window of a Broker or Channel, and the errors.

    None: duplicates are not detected.
    """
    causes = _unknown(object_, _OF_SOURCES)
    written = annotation(object_, DUPLICATE_WINDOW)
    if written is None:
        return None, causes
    try:
        return duration_ms(written) or None, causes
    except ValueError as error:
        causes.append(_cause(DUPLICATE_WINDOW, written, str(error)))
        return None, causes


def path_of(name: str) -> str:
    """Return the path of an annotation, for a Cause."""
    return f"metadata.annotations[{name}]"


def dependency(trigger: Object) -> tuple[Object, list[Cause]]:
    """Return the object that a Trigger depends on (empty if it does not depend on one), and the errors.

    Knative: the annotation `knative.dev/dependency` holds a reference in JSON.
    """
    written = annotation(trigger, DEPENDENCY)
    if written is None:
        return {}, []
    try:
        # A text of the user with any depth: the parser is recursive, so RecursionError counts as not valid.
        reference = json.loads(written)
    except (ValueError, RecursionError):
        reference = None
    if not isinstance(reference, Mapping):
        return {}, [
            _cause(
                DEPENDENCY,
                written,
                'expected a reference in JSON, for example {"apiVersion": …, "kind": …, "name": …}',
            )
        ]
    missing = [name for name in ("apiVersion", "kind", "name") if not text(reference, name)]
    if missing:
        return {}, [_cause(DEPENDENCY, written, f"{', '.join(missing)}: must be given")]
    # The status of the Trigger shows whether the object is ready, so it must be in a namespace that the
    # author can read.
    if text(reference, "namespace") not in {"", namespace_of(trigger)}:
        return {}, [_cause(DEPENDENCY, written, "the namespace must be the Trigger's own")]
    return reference, []


def injection(trigger: Object) -> list[Cause]:
    """Return the errors in Knative's annotation `eventing.knative.dev/injection`.

    The gateway accepts the annotation and does not create a Broker because of it.
    """
    causes: list[Cause] = []
    _one_of(trigger, INJECTION, ("enabled", "disabled"), causes)
    return causes


def _cause(name: str, written: str, expected: str) -> Cause:
    return Cause(Because.INVALID, path_of(name), f'"{written[:80]}": {expected}')


def _unknown(object_: Object, known: frozenset[str]) -> list[Cause]:
    """Refuse unknown annotations with our prefix: a misspelled one would silently have no effect."""
    names = child(object_, "metadata", "annotations")
    return [
        Cause(Because.NOT_SUPPORTED, path_of(name), f"supported values: {', '.join(sorted(known))}")
        for name in names
        if name.startswith(PREFIX) and name not in known
    ]


def _one_of(object_: Object, name: str, allowed: tuple[str, ...], causes: list[Cause]) -> str | None:
    written = annotation(object_, name)
    if written is None or written in allowed:
        return written
    causes.append(_cause(name, written, f"expected {' or '.join(allowed)}"))
    return None


def _order(object_: Object, causes: list[Cause]) -> Order:
    ours = _one_of(object_, ORDER, tuple(Order), causes)
    kafkas = _one_of(object_, KAFKA_ORDER, ("unordered", "ordered"), causes)
    # The annotation of this gateway is more specific than that of Kafka: it also knows the order by key.
    return Order(ours or kafkas or Order.UNORDERED)


def _start(object_: Object, causes: list[Cause]) -> tuple[Start, str | None]:
    written = annotation(object_, START)
    if written is None or written == Start.NEW:
        return Start.NEW, None
    if written == Start.EARLIEST:
        return Start.EARLIEST, None
    kind, _, value = written.partition("=")
    if kind == Start.TIME and moment_ms(value) is not None:
        return Start.TIME, value
    if kind == Start.OFFSET and _OFFSETS.fullmatch(value):
        return Start.OFFSET, value
    causes.append(
        _cause(
            START,
            written,
            "expected new, earliest, time=2026-01-31T12:00:00Z or offset=PARTITION=OFFSET,… (an offset:"
            " digits, @earliest or @latest)",
        )
    )
    return Start.NEW, None


def _in_flight_max(object_: Object, causes: list[Cause]) -> int | None:
    written = annotation(object_, IN_FLIGHT_MAX)
    if written is None:
        return None
    if re.fullmatch("[0-9]{1,5}", written) and 1 <= int(written) <= IN_FLIGHT_LIMIT:
        return int(written)
    causes.append(_cause(IN_FLIGHT_MAX, written, f"expected an integer from 1 to {IN_FLIGHT_LIMIT}"))
    return None


def _per_second_max(object_: Object, causes: list[Cause]) -> float | None:
    written = annotation(object_, PER_SECOND_MAX)
    if written is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", written) and float(written) > 0:
        return float(written)
    causes.append(_cause(PER_SECOND_MAX, written, "expected a number greater than 0, such as 20 or 0.5"))
    return None
