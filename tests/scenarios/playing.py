"""Plays a scenario on a stage: carries out each command, waits for the expected results, and returns the
actual ones.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from amqp_streams import names
from tests.scenarios.script import RULE, Scenario, Step
from tests.scenarios.telling import ClientEvent, Teller

CREDIT: Final = 100


class Stage(Protocol):
    """A node and a client. Values are as in JSON, but that {"symbol": …}, {"ulong": …} and {"timestamp": …}
    are of those types.
    """

    def start(self, logs: Mapping[str, int], settings: Mapping[str, str]) -> None:
        """A new node, and no connection."""

    def restart(self) -> None:
        """Kill the node, and start it again on its stored data."""

    def connect(self, connection: str) -> None:
        """Open a connection."""

    def say(self, command: Mapping[str, Any]) -> None:
        """Let the client act: attach, send, settle, credit, detach, lose."""

    def redirect(self, log: str, partitions: Sequence[int], host: str, port: int) -> None:
        """Change the configuration of the running node."""

    def wait(self, ms: int) -> None:
        """Advance the time."""

    def now_ms(self) -> int:
        """The node's clock, UTC."""

    def heard(self, enough: Callable[[list[ClientEvent]], bool]) -> list[ClientEvent]:
        """Return what happened since the last call: as soon as nothing more is expected, or after a time
        limit.
        """


class Player:
    """One scenario on one stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._teller = Teller()
        self._connected: set[str] = set()

    def play(self, scenario: Scenario) -> list[list[str]]:
        """Return the results of each step. The wait for expected results has a limit."""
        return [self._step(step) for step in scenario.steps]

    def fails(self, scenario: Scenario) -> str | None:
        """The first step whose results differ, with these results; None if none differs.

        The steps after it are not played.
        """
        for step in scenario.steps:
            told = self._step(step)
            if told != list(step.expected):
                return "\n".join([step.line, RULE, *told])
        return None

    def _step(self, step: Step) -> list[str]:
        getattr(self, f"_{step.verb}")(step)
        if step.verb in {"node", "mark"}:
            return []
        return self._teller.lines(
            self._stage.heard(lambda client_events: self._is_all(client_events, step.expected))
        )

    def _is_all(self, client_events: list[ClientEvent], expected: Sequence[str]) -> bool:
        return len(self._teller.lines(client_events)) >= len(expected)

    # -- verbs

    def _node(self, step: Step) -> None:
        self._connected.clear()
        logs = {name: int(count) for name, _, count in (word.partition(":") for word in step.words)}
        self._stage.start(logs, step.options)

    def _restart(self, _step: Step) -> None:
        self._connected.clear()
        self._stage.restart()

    def _connect(self, step: Step) -> None:
        (name,) = step.words
        self._connected.add(name)
        self._stage.connect(name)

    def _attach(self, step: Step) -> None:
        link, role, address = step.words
        options = step.options
        connection = options.get("on", "one")
        if connection not in self._connected:
            self._connected.add(connection)
            self._stage.connect(connection)
            self._stage.heard(bool)
        self._teller.attaching(link)
        self._stage.say(
            {
                "do": "attach",
                "connection": connection,
                "link": link,
                "name": options.get("name", link),
                "role": role,
                "address": address,
                "properties": _properties(options),
                "filters": self._filters(options),
                "credit": int(options.get("credit", CREDIT)) if role == "consumer" else 0,
                "durable": "durable" in options,
                "presettled": "presettled" in options,
            }
        )

    def _filters(self, options: Mapping[str, str]) -> dict[str, Any]:
        filters: dict[str, Any] = {}
        conditions: dict[str, Any] = {}
        if "from" in options:
            conditions[names.OFFSET] = {"symbol": self._filled(options["from"])}
        if "time" in options:
            conditions[names.TIMESTAMP] = {"timestamp": self._teller.marks[options["time"]]}
        if conditions:
            kind: Any = (
                names.FILTER_DELIVERY_ANNOTATIONS_CODE
                if "code" in options
                else names.FILTER_DELIVERY_ANNOTATIONS
            )
            filters["start"] = {"descriptor": kind, "map": conditions}
        for option, kind in (
            ("sql", names.FILTEX_SQL),
            ("events-sql", names.FILTER_SQL),
            ("selector", names.SELECTOR),
        ):
            if option in options:
                filters[option] = {"descriptor": kind, "text": self._filled(options[option])}
        if "unknown" in options:
            filters["unknown"] = {"descriptor": "vendor:unheard-of", "text": options["unknown"]}
        if "properties" in options:
            key, _, wanted = options["properties"].partition(":")
            filters["properties"] = {"descriptor": names.FILTEX_PROPERTIES, "map": {key: wanted}}
        return filters

    def _filled(self, text: str) -> str:
        """Offsets that were seen, and marks, put in their places: {offset:a}, {noon}."""
        for body, offset in self._teller.offsets.items():
            text = text.replace(f"{{offset:{body}}}", offset)
        for name, moment in self._teller.marks.items():
            text = text.replace(f"{{{name}}}", str(moment))
        return text

    def _send(self, step: Step) -> None:
        link, *bodies = step.words
        hints: dict[str, Any] = {
            key: step.options[key] for key in ("target", "key", "n", "relayed-from") if key in step.options
        }
        if "sequence" in step.options:
            hints["sequence"] = int(step.options["sequence"])
        self._stage.say({"do": "send", "link": link, "bodies": bodies} | hints)

    def _settle(self, step: Step) -> None:
        link, outcome, *bodies = step.words
        self._stage.say({"do": "settle", "link": link, "outcome": outcome, "bodies": bodies})

    def _credit(self, step: Step) -> None:
        self._stage.say({"do": "credit", "link": step.words[0], "credit": int(step.words[1])})

    def _detach(self, step: Step) -> None:
        self._stage.say({"do": "detach", "link": step.words[0]})

    def _lose(self, step: Step) -> None:
        self._connected.discard(step.words[0])
        self._stage.say({"do": "lose", "connection": step.words[0]})

    def _wait(self, step: Step) -> None:
        text = step.words[0]
        self._stage.wait(
            int(text.removesuffix("ms")) if text.endswith("ms") else 1000 * int(text.removesuffix("s"))
        )

    def _mark(self, step: Step) -> None:
        self._teller.marks[step.words[0]] = self._stage.now_ms()

    def _redirect(self, step: Step) -> None:
        log, partitions, place = step.words
        host, _, port = place.partition(":")
        self._stage.redirect(
            log, [] if partitions == "-" else [int(each) for each in partitions.split(",")], host, int(port)
        )


def _properties(options: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if "partition" in options:
        properties[names.PARTITION] = {"symbol": options["partition"]}
    if "group" in options:
        properties[names.CONSUMER_GROUP] = options["group"]
    if "epoch" in options:
        properties[names.EPOCH] = {"ulong": int(options["epoch"])}
    if "producer" in options:
        properties[names.PRODUCER_ID] = options["producer"]
    return properties


def transcript(scenario: Scenario, told: Sequence[Sequence[str]]) -> str:
    """Return what was played, as text: expected lines that are missing with `-`, unexpected lines
    with `+`.
    """
    lines = [f"{scenario.name} {scenario.title}"]
    for step, outcome in zip(scenario.steps, told, strict=False):
        lines += ["", step.line, *([RULE] if outcome or step.expected else [])]
        if list(outcome) == list(step.expected):
            lines += [f"  {line}" for line in outcome]
        else:
            lines += [f"- {line}" for line in step.expected] + [f"+ {line}" for line in outcome]
    return "\n".join(lines)
