"""Topics of logs: their names, and their identity. Pure.

A log NAME of the node has the topic PREFIX.log.NAME. Kafka refuses a topic `a_b` if a topic `a.b` exists,
because both have the same name in its metrics, but both are valid names of logs. So our topics have no
underscore:

    in the name of a log    in the name of its topic
    _                       .-u
    .-                      .-d
    anything else           the same

The usual names, those of Brokers and Channels included, stay as they are.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqp_streams.log_settings import log_name

TOPIC_NAME_MAX: Final = 249
"""The longest name of a topic: Kafka adds a number to it for a folder, whose name has at most 255 bytes."""
PREFIX_MAX: Final = 100
_PREFIX: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_WRITTEN: Final = {"_": ".-u", ".-": ".-d"}
_READ: Final = {written: plain for plain, written in _WRITTEN.items()}
_TO_WRITE: Final = re.compile(r"_|\.-")
_TO_READ: Final = re.compile(r"\.-(.?)")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of the topics that nodes with this prefix make, and of those that other programs use.

    `plain`: topics of other programs, whose logs have the same names.

    Raises:
        ValueError: the prefix is not valid, or a topic cannot be a log.
    """

    prefix: str = "amqp-streams"
    plain: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(self.prefix) > PREFIX_MAX or not _PREFIX.fullmatch(self.prefix):
            message = (
                f"{self.prefix!r} is not a valid prefix of topics: use 1 to {PREFIX_MAX} letters, digits, '.'"
                " and '-', starting and ending with a letter or digit"
            )
            raise ValueError(message)
        for topic in self.plain:
            log_name(topic)
            if topic.startswith(f"{self.prefix}."):
                message = f"topic {topic!r} has the prefix of the logs of nodes: list other topics only"
                raise ValueError(message)

    @property
    def state(self) -> str:
        """The topic of the small values that nodes share."""
        return f"{self.prefix}.state"

    @property
    def numbers(self) -> str:
        """The topic of the highest numbers of idempotent producers."""
        return f"{self.prefix}.numbers"

    def of_log(self, name: str) -> str:
        """The topic of a log.

        Raises:
            ValueError: the name is not valid, or the name of the topic would be too long.
        """
        if name in self.plain:
            return name
        topic = self._logs + _TO_WRITE.sub(lambda found: _WRITTEN[found[0]], log_name(name))
        if len(topic) > TOPIC_NAME_MAX:
            message = (
                f"the name of log {name!r} is too long for Kafka: its topic would have {len(topic)}"
                f" characters (at most {TOPIC_NAME_MAX})"
            )
            raise ValueError(message)
        return topic

    def log_of(self, topic: str) -> str | None:
        """The log whose topic this is; None if it is not the topic of a log."""
        if topic in self.plain:
            return topic
        if not topic.startswith(self._logs):
            return None
        written = topic.removeprefix(self._logs)
        name = _TO_READ.sub(lambda found: _READ.get(found[0], "/"), written)
        # A text that `of_log` does not write is not the topic of a log: two topics must never be one log.
        try:
            return name if self.of_log(name) == topic else None
        except ValueError:
            return None

    @property
    def _logs(self) -> str:
        return f"{self.prefix}.log."


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """What happened to topics since they were last seen: names in order."""

    appeared: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()
    """Deleted and created again: the events of the topic are others, although its name is the same."""
    gone: tuple[str, ...] = ()


def topic_changes(known: Mapping[str, str], found: Mapping[str, str]) -> TopicChanges:
    """Compare the ids of topics by their names, as last seen and as seen now."""
    return TopicChanges(
        appeared=tuple(sorted(found.keys() - known.keys())),
        remade=tuple(sorted(name for name in found.keys() & known.keys() if found[name] != known[name])),
        gone=tuple(sorted(known.keys() - found.keys())),
    )
