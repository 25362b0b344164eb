"""The settings of the log of a Broker or Channel. They come from the Broker's ConfigMap, from the Channel's
template, or from the defaults.

ConfigMap keys. All keys are optional; other keys are ignored:
    partitions   an integer from 1 to 1024 (also as `default.topic.partitions`, the key of Kafka's Broker)
    retention    an ISO 8601 duration of at least a second, for example P7D; 0: the node's default
    delivery     a DeliverySpec in YAML or JSON, for Brokers without spec.delivery

A Channel's template has spec.partitions (also numPartitions) and spec.retention (also retentionDuration).

A message does not contain a value from a ConfigMap of another namespace, because users who can read the
status may not be allowed to read that ConfigMap.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from knative_gateway.controller.deciding.plan import LogNeed, Settings
from knative_gateway.ports import Key
from knative_gateway.resources.documents.manifests import read_yaml
from knative_gateway.resources.durations import duration_ms
from knative_gateway.resources.objects import EMPTY, Object, at, child, namespace_of, text
from knative_gateway.resources.schema.checking import check
from knative_gateway.resources.schema.own_kinds import DELIVERY
from knative_gateway.resources.validation import check_delivery

PARTITIONS_MAX: Final = 1024
RETENTION_MS_MIN: Final = 1000
"""The smallest retention that the node accepts."""
DELIVERY_CHARACTERS_MAX: Final = 16_384
PROBLEM_CHARACTERS_MAX: Final = 1024
_NOT_SHOWN: Final = "is not valid; its contents are not shown in another namespace"
WELL_KNOWN: Final = Key("", "ConfigMap", "knative-eventing", "config-br-default-channel")
"""Knative's examples refer to this ConfigMap. If it does not exist, the defaults are used."""
_PARTITIONS: Final = ("partitions", "default.topic.partitions", "numPartitions")
_RETENTION: Final = ("retention", "retentionDuration")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`problem`: None, or a reason and a sentence: the settings cannot be used, and the other fields have
    their defaults.
    """

    need: LogNeed
    delivery: Object | None = None
    problem: tuple[str, str] | None = None


def of_broker(
    log: str,
    broker: Object,
    config: Object | None,
    config_key: Key | None,
    settings: Settings,
) -> LogSettings:
    """Return the settings of a Broker's log.

    `config`: the object that spec.config refers to, or None if it does not exist. `config_key`: its key, or
    None if spec.config is empty.
    """
    plain = LogSettings(LogNeed(log, settings.partitions, settings.retention_ms))
    if config_key is None:
        return plain
    where = f"ConfigMap {config_key.namespace}/{config_key.name}"
    is_foreign = config_key.namespace != namespace_of(broker)
    if (config_key.group, config_key.kind) != ("", "ConfigMap"):
        found = _failed(
            plain,
            "ConfigKindNotSupported",
            f"spec.config refers to a {config_key.kind}; a ConfigMap is needed",
        )
    elif config is not None:
        found = _read(plain, child(config, "data"), settings, where)
        if found.problem and is_foreign:
            found = _failed(plain, "ConfigInvalid", f"{where} {_NOT_SHOWN}")
    # So that the examples of Knative work without a change.
    elif config_key == WELL_KNOWN:
        found = plain
    else:
        found = _failed(plain, "ConfigNotFound", f"{where} does not exist")
    if found.problem or at(broker, "spec", "delivery"):
        return found
    delivery, problem = _delivery(text(config, "data", "delivery"))
    if problem:
        return _failed(
            plain,
            "ConfigInvalid",
            f"{where} {_NOT_SHOWN}" if is_foreign else f"{where}: delivery: {problem}",
        )
    return LogSettings(found.need, settings.defaults.broker_delivery if delivery is None else delivery)


def of_channel(log: str, channel: Object, settings: Settings) -> LogSettings:
    """Return the settings from the Channel's template. An InMemoryChannel does not have a template."""
    return _read(
        LogSettings(LogNeed(log, settings.partitions, settings.retention_ms)),
        child(channel, "spec", "channelTemplate", "spec"),
        settings,
        "spec.channelTemplate.spec",
    )


def _read(plain: LogSettings, data: Object, settings: Settings, where: str) -> LogSettings:
    partitions, retention_ms = settings.partitions, settings.retention_ms
    for name in _PARTITIONS:
        if name in data:
            written = _written(data[name])
            # At most four digits, because int() of a text of thousands of digits raises an error.
            if not re.fullmatch("[0-9]{1,4}", written) or not 1 <= int(written) <= PARTITIONS_MAX:
                return _failed(
                    plain,
                    "ConfigInvalid",
                    f"{where}: {name} must be an integer from 1 to {PARTITIONS_MAX}, not {written[:80]!r}",
                )
            partitions = int(written)
            break
    for name in _RETENTION:
        if name in data:
            try:
                retention_ms = duration_ms(_written(data[name])) or None
                if retention_ms is not None and retention_ms < RETENTION_MS_MIN:
                    raise ValueError("must be at least one second (PT1S)")
            except ValueError as error:
                return _failed(plain, "ConfigInvalid", f"{where}: {name}: {error}")
            break
    return LogSettings(LogNeed(plain.need.log, partitions, retention_ms))


def _failed(plain: LogSettings, reason: str, message: str) -> LogSettings:
    return LogSettings(plain.need, None, (reason, message))


def _delivery(written: str) -> tuple[Object | None, str]:
    """Return a DeliverySpec from YAML, or why it is not valid."""
    if not written:
        return None, ""
    # YAML is parsed in the event loop, and its time grows with the text.
    if len(written) > DELIVERY_CHARACTERS_MAX:
        return None, f"must have at most {DELIVERY_CHARACTERS_MAX} characters (got {len(written)})"
    try:
        documents = read_yaml(written.encode())
    except ValueError as error:
        return None, str(error)[:200]
    return _read_delivery(documents[0]) if len(documents) == 1 else (None, "expected one YAML document")


def _read_delivery(read: object) -> tuple[Object | None, str]:
    if not isinstance(read, Mapping):
        return None, "expected a DeliverySpec"
    checked = check(DELIVERY, read, "delivery")
    wrong = [str(cause) for cause in checked.causes] + [f"unknown field {path}" for path in checked.unknown]
    wrong = wrong or [str(cause) for cause in check_delivery({"spec": {"delivery": checked.value}})]
    return (None, "; ".join(wrong)[:PROBLEM_CHARACTERS_MAX]) if wrong else (child(checked.value) or EMPTY, "")


def _written(value: object) -> str:
    """Return a setting as text. Python raises ValueError for an integer of thousands of digits."""
    try:
        return str(value)
    except ValueError:
        return ""
