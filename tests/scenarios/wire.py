"""The stage over the wire: `amqp-streams serve` in a process, and for each connection a process with another
client library.

Scenarios that need the same settings share a node. Each scenario has its own logs: `temps` is `temps-7` on
the wire. A `Storing` says where the nodes keep them: `tests/kafka_spec` has one for Kafka.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from amqp_streams.client import blocking
from examples.node import NodeProcess
from interop.clients import HERE, Command, MissingError, prepare
from tests.scenarios.playing import Player, transcript
from tests.scenarios.script import Scenario, sections
from tests.scenarios.telling import ClientEvent

CLIENTS: Final = ("proton", "rhea")
PATIENCE_S: Final = 60.0
"""The wait for expected results; `WireStage.patience_s` may be less."""
GRACE_S: Final = 0.04
"""The wait for unexpected results."""


def command_of(client: str) -> Command:
    """Return the command of a client's `scenario` program.

    Raises:
        MissingError: this machine does not have it.
    """
    known = prepare(client)
    programs = {"proton": [*known.arguments[:-1], str(HERE / "proton" / "scenario.py")]}
    programs["rhea"] = [*known.arguments[:-1], str(HERE / "rhea" / "scenario.mjs")]
    return Command(programs[client], known.environment)


@dataclass(frozen=True, slots=True)
class Storing:
    """Where nodes keep their logs. `process`: makes a node of a folder and options.

    `settings`: lines of its configuration. `tables`: lines that must follow all settings without a table.
    """

    process: Callable[..., NodeProcess] = NodeProcess
    settings: Sequence[str] = ('sync = "never"',)
    tables: Sequence[str] = ()


IN_A_DIRECTORY: Final = Storing()


class _Node:
    """A node that is shared; its redirects are those of the scenario that plays."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], storing: Storing, numbers: Iterator[int]
    ) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "node.toml"
        self._settings = settings
        self._storing = storing
        self._redirects = ""
        self._write()
        self.process = storing.process(folder, "--config", str(self._file), "--log-level", "info")
        self.process.start()
        self._numbers = numbers

    def _write(self) -> None:
        lines = [*self._storing.settings, self._redirects, *self._storing.tables, "[groups]"]
        for name, value in self._settings.items():
            key = name.removeprefix("groups.")
            lines.append(f"{key} = {json.dumps(value.split(',') if key == 'only' else value)}")
        self._file.write_text("\n".join(lines))

    def create(self, logs: Mapping[str, int]) -> dict[str, str]:
        """Create logs, and return their names on the wire."""
        names = {}
        with blocking.connect(self.process.url) as client:
            for name, partitions in logs.items():
                names[name] = f"{name}-{next(self._numbers)}"
                client.management.create_log(names[name], partitions=partitions)
        return names

    def redirect(self, rules: str) -> None:
        """Change the configuration and have it read."""
        if rules == self._redirects:
            return
        self._redirects = rules
        self._write()
        seen = self.process.words.count("reloaded")
        assert self.process.process is not None
        self.process.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while self.process.words.count("reloaded") == seen:
            assert time.monotonic() < deadline, (
                f"the node does not read its configuration again: {self.process.words[-2000:]}"
            )
            time.sleep(0.005)


class _Client:
    """A process with one connection."""

    def __init__(
        self, command: Command, url: str, container: str, told: "queue.Queue[ClientEvent]", connection: str
    ) -> None:
        self.process = subprocess.Popen(
            [*command.arguments, url, container],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **command.environment},
            text=True,
        )
        self._reader = threading.Thread(target=self._listen, args=(told, connection), daemon=True)
        self._reader.start()

    def _listen(self, told: "queue.Queue[ClientEvent]", connection: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told.put(json.loads(line) | {"connection": connection})

    def say(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class WireStage:
    """See `playing.Stage`. Use it with `with`: that ends all processes."""

    def __init__(self, command: Command, folder: Path, storing: Storing = IN_A_DIRECTORY) -> None:
        self.patience_s = PATIENCE_S
        self._storing = storing
        # Of all nodes: they may have their logs in the same place.
        self._numbers = count(1)
        self._command = command
        self._folder = folder
        self._nodes: dict[tuple[tuple[str, str], ...], _Node] = {}
        self._names: dict[str, str] = {}
        self._clients: dict[str, _Client] = {}
        self._connection_of: dict[str, str] = {}
        self._told: queue.Queue[ClientEvent] = queue.Queue()

    def start(self, logs: Mapping[str, int], settings: Mapping[str, str]) -> None:
        """See `Stage`."""
        self.leave()
        key = tuple(sorted(settings.items()))
        if key not in self._nodes:
            self._nodes[key] = _Node(
                self._folder / f"node-{len(self._nodes)}", settings, self._storing, self._numbers
            )
        self._node = self._nodes[key]
        self._node.redirect("")
        self._names = self._node.create(logs)

    def leave(self) -> None:
        """End the connections of a scenario, and forget their events."""
        for client in self._clients.values():
            client.kill()
        self._clients.clear()
        self._told = queue.Queue()

    def restart(self) -> None:
        """See `Stage`."""
        self._node.process.kill()
        self._node.process.start()

    def connect(self, connection: str) -> None:
        """See `Stage`."""
        container = f"container-{connection}-{next(iter(self._names.values()))}"
        if connection in self._clients:
            self._clients.pop(connection).kill()
        self._clients[connection] = _Client(
            self._command, self._node.process.url, container, self._told, connection
        )

    def say(self, command: Mapping[str, Any]) -> None:
        """See `Stage`."""
        if command["do"] == "lose":
            self._clients.pop(command["connection"]).kill()
            return
        if command["do"] == "attach":
            log, slash, rest = command["address"].partition("/")
            command = dict(command) | {"address": self._names.get(log, log) + slash + rest}
            self._connection_of[command["link"]] = command["connection"]
        self._clients[self._connection_of[command["link"]]].say(command)

    def redirect(self, log: str, partitions: Sequence[int], host: str, port: int) -> None:
        """See `Stage`."""
        rule = (
            f'[[redirect]]\nlog = "{self._names[log]}"\npartitions = {list(partitions)}\nhost ='
            f' "{host}"\nport = {port}\n'
        )
        self._node.redirect(rule if partitions else "")

    def wait(self, ms: int) -> None:
        """See `Stage`."""
        time.sleep(ms / 1000)

    def now_ms(self) -> int:
        """See `Stage`."""
        return round(time.time() * 1000)

    def heard(self, enough: Callable[[list[ClientEvent]], bool]) -> list[ClientEvent]:
        """See `Stage`."""
        client_events: list[ClientEvent] = []
        deadline = time.monotonic() + self.patience_s
        while True:
            done = enough(client_events)
            try:
                client_events.append(
                    self._local(
                        self._told.get(timeout=GRACE_S if done else max(0.0, deadline - time.monotonic()))
                    )
                )
            except queue.Empty:
                return client_events

    def _local(self, client_event: ClientEvent) -> ClientEvent:
        """Return lines with the names of the scenario."""
        wire = {theirs: ours for ours, theirs in self._names.items()}
        info = client_event.get("info") or {}
        return dict(client_event) | {
            "info": {
                key: wire.get(value, value) if isinstance(value, str) else value
                for key, value in info.items()
            }
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        for node in self._nodes.values():
            node.process.__exit__(kind, error, trace)


def differences(stage: WireStage, scenarios: Sequence[Scenario]) -> list[str]:
    """Return the transcripts whose results differ from the files."""
    found = []
    for scenario in scenarios:
        told = Player(stage).play(scenario)
        if told != [list(step.expected) for step in scenario.steps]:
            found.append(transcript(scenario, told))
    return found


def run(names: Sequence[str]) -> int:
    """Play all scenarios with these clients, or with each client. Returns 1 if a result differs."""
    scenarios = [scenario for section in sections() for scenario in section.scenarios]
    failed = False
    for name in names or CLIENTS:
        began = time.monotonic()
        try:
            command = command_of(name)
        except MissingError as error:
            print(f"{name:10} skipped: {error}")
            continue
        with tempfile.TemporaryDirectory() as folder, WireStage(command, Path(folder)) as stage:
            wrong = differences(stage, scenarios)
        failed |= bool(wrong)
        print("\n\n".join(wrong) + "\n" if wrong else "", end="")
        print(
            f"{name:10} {'FAILED' if wrong else 'ok'}: {len(scenarios) - len(wrong)} of {len(scenarios)}"
            " scenarios",
            end="",
        )
        print(f" ({time.monotonic() - began:.1f} s)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
