"""A gateway as a process of its own, with its log node as a child of it; and what a program that uses one
needs: resources and events.

The first start lets the system choose ports; later ones keep them, so that senders and AMQP clients find it
again.
"""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from examples.node import NodeProcess

_COMMAND_S_MAX: Final = 120.0
_READY: Final = (
    "eventing.knative.dev/v1/brokers",
    "eventing.knative.dev/v1/triggers",
    "messaging.knative.dev/v1/channels",
    "messaging.knative.dev/v1/subscriptions",
)


class GatewayProcess(NodeProcess):
    """`knative-gateway serve` with its state, words and ready file in `folder`.

    Use it with `with`: that stops what is left running.
    """

    @property
    def http(self) -> str:
        """HOST:PORT of the API and the ingress."""
        return self.addresses["http"][0]

    @property
    def base_url(self) -> str:
        """What its URLs begin with."""
        return f"http://{self.http}"

    @property
    def node_pid(self) -> int | None:
        """Of the log node, while it runs: the child that has the data of the node open."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        data = str((self.data_dir / "log").resolve())
        return next((int(child) for child in children if _opened(child, data)), None)

    def command(self) -> list[str]:
        """What is run."""
        listen = self.http if "http" in self.addresses else self.listen
        command = [
            program(),
            "serve",
            "--state-dir",
            str(self.data_dir),
            "--listen",
            listen,
            "--ready-file",
            str(self._ready_file),
        ]
        if "amqp" in self.addresses:
            command += ["--amqp-listen", self.addresses["amqp"][0]]
        return [*command, *self.options]

    def environment(self) -> dict[str, str]:
        """Ours without settings of a gateway or node that someone may have set for another one."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AMQP_STREAMS_", "KNATIVE_GATEWAY_"))
        }
        return {**ours, "PYTHONFAULTHANDLER": "1"}  # a crash in the engine's C library then has words

    def cli(self, *arguments: str, status: int = 0) -> str:
        """Run `knative-gateway` against it: what it prints.

        Raises:
            RuntimeError: it ended with another status; with its words.
        """
        environment = {**self.environment(), "KNATIVE_GATEWAY_URL": self.base_url}
        done = subprocess.run(
            [program(), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S_MAX,
            check=False,
        )
        if done.returncode != status:
            message = f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}"
            raise RuntimeError(message)
        return done.stdout

    def get(self, path: str) -> object:
        """An object or a list from the API, by its path."""
        return self._ask("GET", path)

    def _ask(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> object:
        connection = http.client.HTTPConnection(self.http, timeout=_COMMAND_S_MAX)
        headers = {"accept": "application/json", "content-type": content_type}
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            told = answer.read()
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            message = f"{method} {path}: {answer.status}: {told.decode(errors='replace')[:1000]}"
            raise RuntimeError(message)
        return json.loads(told)

    def apply(self, text: str, *, wait: bool = True) -> None:
        """Apply resources in YAML, and wait until all of those that can be are ready.

        Raises:
            RuntimeError: they are refused, or not ready in time; with the reason.
        """
        for one in yaml.safe_load_all(text):
            self._ask(
                "PATCH", f"{_path(one)}?fieldManager=examples&force=true", one, "application/apply-patch+yaml"
            )
        if wait:
            self.wait_ready()

    def delete(self, text: str) -> None:
        """Delete the resources in YAML.

        Raises:
            RuntimeError: that is refused; with the reason.
        """
        for one in yaml.safe_load_all(text):
            self._ask("DELETE", _path(one))

    def wait_ready(self) -> None:
        """Until every Broker, Trigger, Channel and Subscription is ready.

        Raises:
            RuntimeError: they are not in time; with the reasons.
        """
        deadline = time.monotonic() + _COMMAND_S_MAX
        while unready := [what for plural in _READY for what in self._unready(plural)]:
            if time.monotonic() > deadline:
                message = f"not ready: {'; '.join(unready)}"
                raise RuntimeError(message)
            time.sleep(0.02)

    def _unready(self, plural: str) -> list[str]:
        found: Any = self.get(f"/apis/{plural}")
        return [
            f"{one['kind']} {one['metadata']['name']}: {conditions.get('Ready')}"
            for one in found["items"]
            for conditions in [{each["type"]: each for each in one.get("status", {}).get("conditions", ())}]
            if conditions.get("Ready", {}).get("status") != "True"
            or one["status"].get("observedGeneration") != one["metadata"].get("generation")
        ]


class Sender:
    """POSTs events over one connection, one after the other.

    `path`: of a Broker or Channel, `/broker/NAMESPACE/NAME`.
    """

    def __init__(self, address: str, path: str) -> None:
        self._address: Final = address
        self._path: Final = path
        self._connection: http.client.HTTPConnection | None = None

    def send(
        self, attributes: Mapping[str, str], data: bytes, content_type: str = "application/json"
    ) -> int | None:
        """The status of the answer; None if none came: the event may be stored or not."""
        headers = {
            "ce-specversion": "1.0",
            **{f"ce-{name}": value for name, value in attributes.items()},
            "content-type": content_type,
        }
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._address, timeout=_COMMAND_S_MAX)
            self._connection.request("POST", self._path, body=data, headers=headers)
            # Otherwise an answer that breaks off keeps the connection open if it was the last one of it.
            with self._connection.getresponse() as answer:
                answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return answer.status

    def close(self) -> None:
        """Close the connection; the next event opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _opened(pid: str, folder: str) -> bool:
    """Whether a process has a file in this folder open."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  one that is closed meanwhile is no error
    except OSError:
        return False  # it has ended
    for name in names:
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith(folder):  # noqa: PTH115
                return True
    return False


def _path(object_: Mapping[str, Any]) -> str:
    """Of an object of Knative's kinds in the API."""
    metadata = object_["metadata"]
    collection = (
        f"/apis/{object_['apiVersion']}/namespaces/{metadata['namespace']}/{object_['kind'].lower()}s"
    )
    return f"{collection}/{metadata['name']}"


def program() -> str:
    """`knative-gateway` of this environment."""
    return str(Path(sys.executable).parent / "knative-gateway")
