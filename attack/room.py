"""Where attacks happen: a node or a gateway in processes of their own, beside a neighbour."""

import http.client
import json
import os
import secrets
import signal
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.config import Limits
from attack.disk import DISK
from attack.load import attacker_s
from attack.neighbour import Measured, Neighbour, neighbour
from attack.peer import Peer
from attack.settings import (
    FULL,
    GATEWAY_SMALL,
    GATEWAY_TIMES,
    MALLORY,
    NINA,
    SMALL,
    SUBSCRIBERS,
    SUBSCRIBERS_SMALL,
    TIMES,
    http_token,
    make_certificate,
    token,
    trusting,
    write_gateway,
    write_node,
)
from bench.process import usage, written_bytes
from examples.gateway import GatewayProcess
from examples.node import NodeProcess
from knative_gateway import config as gateway_config

WAIT_S_MAX: Final = 60.0
GROWN_S_MAX: Final = 20.0
"""How long the memory of the product may exceed its bound: checks of passwords end."""
CALM_S_MAX: Final = 30.0
"""How long an attack waits at most until the product has finished the work of the attacks before."""
CALM_LOOK_S: Final = 0.5
CALM_RATIO, CALM_SHARE = 1.5, 0.05
"""The product is calm if it uses at most this many times as much CPU time as at first, and this share of a
CPU more.
"""


@dataclass
class Room:
    """One product that is attacked. `is_small`: with the limits of the short form, else the default ones."""

    folder: Path
    is_small: bool
    limits: Limits
    secret: str
    neighbour: Neighbour
    process: NodeProcess
    tls: ssl.SSLContext
    gateway_limits: gateway_config.Limits = field(default_factory=gateway_config.Limits)
    subscribers: gateway_config.SubscriberSettings = field(default_factory=gateway_config.SubscriberSettings)
    is_https: bool = False
    without: dict[str, Measured] = field(default_factory=dict)
    """What the neighbour measured without an attack so far."""
    calm_share: float | None = None
    """CPU seconds in a second of the product while only the neighbour works."""
    words_read: int = 0
    """Characters of the log that were looked at."""

    def measured_without(self, measured: Mapping[str, Measured]) -> Mapping[str, Measured]:
        """Add what the neighbour measured without an attack. Returns all of it.

        The p99 of a few seconds alone is one of the two slowest round trips in them.
        """
        for name, each in measured.items():
            self.without[name] = self.without.get(name, Measured()) + each
        return dict(self.without)

    # -- AMQP

    @property
    def amqp(self) -> str:
        """HOST:PORT of the plain listener."""
        return self.process.addresses["amqp"][0]

    @property
    def amqp_tls(self) -> str:
        """HOST:PORT of the TLS listener."""
        return self.process.addresses["amqp"][1]

    @property
    def admin(self) -> str:
        """HOST:PORT of the admin listener."""
        return self.process.addresses["admin"][0]

    @property
    def http(self) -> str:
        """HOST:PORT of the gateway."""
        return self.process.addresses["http"][0]

    def token(self, user: str, **changes: object) -> str:
        """A token of the issuer for a user; `changes` to its claims."""
        return token(self.secret, user, **changes)

    def peer(self, user: str = MALLORY, **options: Any) -> Peer:
        """A connection of that user, opened. Raises TimeoutError: the node did not open it."""
        return Peer(self.amqp, Credentials(token=self.token(user)), **options).opened()

    def stranger(self, **options: Any) -> Peer:
        """A connection that does not log in."""
        return Peer(self.amqp, **options)

    # -- HTTP

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str | None = MALLORY,
        content_type: str = "application/json",
        address: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """One request: status and text. A user's token is sent if there is one; `body`: JSON or bytes."""
        at = address or self.http
        connection = (
            http.client.HTTPSConnection(at, timeout=WAIT_S_MAX, context=self.tls)
            if self.is_https
            else http.client.HTTPConnection(at, timeout=WAIT_S_MAX)
        )
        sent = {"content-type": content_type, **(headers or {})}
        if user is not None:
            sent["authorization"] = f"Bearer {http_token(self.secret, user)}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers=sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def make(
        self, kind: str, api: str, namespace: str, name: str, spec: object, *, user: str = MALLORY
    ) -> None:
        """Create an object. Raises RuntimeError: it is refused."""
        root = "/api/v1" if api == "v1" else f"/apis/{api}"
        body = {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": name},
            **(spec if isinstance(spec, dict) else {}),
        }
        status, words = self.ask("POST", f"{root}/namespaces/{namespace}/{kind.lower()}s", body, user=user)
        if status not in {201, 409}:
            message = f"{kind} {namespace}/{name}: {status}: {words[:300]}"
            raise RuntimeError(message)

    def broker(self, namespace: str, name: str, *, user: str = MALLORY) -> None:
        """Create a Broker and wait until it is ready."""
        self.make("Broker", "eventing.knative.dev/v1", namespace, name, {"spec": {}}, user=user)
        self.wait_ready("brokers", namespace, name, user=user)

    def trigger(
        self,
        namespace: str,
        name: str,
        broker: str,
        url: str,
        *,
        user: str = MALLORY,
        delivery: object = None,
    ) -> None:
        """Create a Trigger and wait until it is ready."""
        spec = {"broker": broker, "subscriber": {"uri": url}, **({"delivery": delivery} if delivery else {})}
        self.make("Trigger", "eventing.knative.dev/v1", namespace, name, {"spec": spec}, user=user)
        self.wait_ready("triggers", namespace, name, user=user)

    def wait_ready(self, plural: str, namespace: str, name: str, *, user: str = MALLORY) -> None:
        """Until that object is Ready. Raises TimeoutError."""
        path = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/{plural}/{name}"

        def ready() -> bool:
            status, words = self.ask("GET", path, user=user)
            found = json.loads(words).get("status", {}).get("conditions", []) if status == 200 else []
            return any(each["type"] == "Ready" and each["status"] == "True" for each in found)

        wait_for(ready, f"{plural} {namespace}/{name} is Ready")

    def send(
        self, path: str, id_: str, data: bytes = b"{}", *, user: str | None = MALLORY, **attributes: str
    ) -> int:
        """POST one event; the status."""
        headers = {"ce-specversion": "1.0", "ce-id": id_, "ce-source": "/m", "ce-type": "m"}
        headers |= {f"ce-{name}": value for name, value in attributes.items()}
        return self.ask("POST", path, data, user=user, headers=headers)[0]

    # -- the processes

    @property
    def words(self) -> str:
        """What the process has logged."""
        return self.process.words

    def get(self, path: str) -> tuple[int, str]:
        """From the admin listener of a node, or from a gateway, without a token."""
        address = self.process.addresses.get("admin", self.process.addresses.get("http", [""]))[0]
        return self.ask("GET", path, user=None, address=address)

    def metric(self, name: str, **labels: str) -> float:
        """A value of `/metrics` that is at most a second old; the sum of all lines that fit."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            is_named = line.startswith(name) and line[len(name) : len(name) + 1] in {" ", "{"}
            if is_named and all(f'{label}="{value}"' in line for label, value in labels.items()):
                total += float(line.rpartition(" ")[2])
        return total

    def is_well(self) -> list[str]:
        """What is not as it was before the last attack, in words."""
        complaints = []
        if self.process.process is None or self.process.process.poll() is not None:
            return [f"the process has ended: {self.words[-500:]}"]
        status, words = self.get("/readyz")
        if status != 200:
            complaints.append(f"/readyz is {status}: {words.strip()}")
        new = self.words[self.words_read :]
        self.words_read += len(new)
        if "Traceback" in new:
            complaints.append(f"a traceback: {new[new.index('Traceback') :][:1500]}")
        return complaints

    def cpu_s(self) -> float:
        """CPU seconds of the product so far, its node included."""
        used = 0.0
        for pid in self._pids():
            with suppress(ProcessLookupError):
                used += usage(pid).cpu_seconds
        return used

    def settle(self, seconds: float = CALM_S_MAX) -> tuple[float, bool]:
        """Wait until the product uses about as little CPU time as before the first attack.

        Returns how many seconds it was busier, and whether it is calm now.
        """
        began = time.monotonic()
        while True:
            at, used = time.monotonic(), self.cpu_s()
            time.sleep(CALM_LOOK_S)
            share = (self.cpu_s() - used) / (time.monotonic() - at)
            if self.calm_share is None:
                self.calm_share = share
            is_calm = share <= self.calm_share * CALM_RATIO + CALM_SHARE
            if is_calm or at - began > seconds:
                return at - began, is_calm

    def written_bytes(self) -> int:
        """Bytes that the product has made the disk write so far, its node included."""
        return sum(written_bytes(pid) for pid in self._pids())

    def memory(self) -> int:
        """Bytes of the product's process that are its own."""
        return usage(self.process.pid).anonymous_bytes

    def growth(self, before: int, bound: int) -> int:
        """By how much the process has grown since it had `before` bytes: within the bound, or for a while.

        A check of a password takes 64 MiB, and one of an earlier attack may still run.
        """
        deadline = time.monotonic() + GROWN_S_MAX
        while (grown := self.memory() - before) > bound and time.monotonic() < deadline:
            time.sleep(0.05)
        return grown

    def all_cpu_s(self) -> float:
        """CPU seconds of product, neighbour and attacker so far."""
        return self.cpu_s() + usage(self.neighbour.pid).cpu_seconds + attacker_s()

    def _pids(self) -> list[int]:
        pids = [self.process.pid]
        if isinstance(self.process, GatewayProcess) and self.process.node_pid is not None:
            pids.append(self.process.node_pid)
        return pids

    def reload(self) -> None:
        """SIGHUP, and wait until it has taken effect."""
        before = self.words.count("reloaded")
        os.kill(self.process.pid, signal.SIGHUP)
        wait_for(lambda: self.words.count("reloaded") > before, "reloaded")


def wait_for(holds: Callable[[], bool], words: str, seconds: float = WAIT_S_MAX) -> None:
    """Until that holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            message = f"not in {seconds:g} s: {words}"
            raise TimeoutError(message)
        time.sleep(0.02)


# -- how rooms are made


class _Node(NodeProcess):
    """A node with more variables of its process: `more`."""

    more: Mapping[str, str] = MappingProxyType({})

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.more}


@contextmanager
def node_room(
    folder: Path,
    *,
    is_small: bool,
    beside: bool = True,
    environment: Mapping[str, str] | None = None,
    **changes: int,
) -> Iterator[Room]:
    """A node with a plain, a TLS and an admin listener.

    `changes` to its limits; `beside`: with a neighbour; `environment`: more variables of its process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limits = Limits(**{**TIMES, **(SMALL if is_small else FULL), **changes})
    secret = secrets.token_hex(32)
    config = write_node(folder, secret, {**TIMES, **(SMALL if is_small else FULL), **changes})
    options = ("--config", str(config), "--admin-listen", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0")
    process = _Node(folder, *options, log=("m-log:4", "n-log:1", "q-log:1"))
    process.more = dict(environment or {})
    paced = pace(folder, is_small=is_small)
    with process, _neighbour_of_node(process, secret, beside=beside, pace=paced) as working:
        yield Room(folder, is_small, limits, secret, working, process, trusting(folder))
        end(process)


@contextmanager
def gateway_tls_room(folder: Path, *, is_small: bool) -> Iterator[Room]:
    """A gateway that speaks HTTPS; without a neighbour."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = make_certificate(folder)
    more = f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    with gateway_room(folder, is_small=is_small, beside=False, more=more, trusted=trusting(folder)) as room:
        yield room


@contextmanager
def gateway_room(
    folder: Path,
    *,
    is_small: bool,
    beside: bool = True,
    options: tuple[str, ...] = (),
    more: str = "",
    trusted: ssl.SSLContext | None = None,
    **changes: float,
) -> Iterator[Room]:
    """A gateway with an embedded node, Brokers `m/default` and `n/default`, and a Trigger of the neighbour.

    `more`: further text of its configuration. `trusted`: it speaks HTTPS. `changes` to its limits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    secret = secrets.token_hex(32)
    limits = {**(GATEWAY_SMALL if is_small else GATEWAY_TIMES), **changes}
    subscribers = dict(SUBSCRIBERS_SMALL if is_small else SUBSCRIBERS)
    config = write_gateway(folder, secret, limits, subscribers, more)
    process = GatewayProcess(folder, "--config", str(config), *options)
    with process:
        http_address = process.addresses["http"][0]
        settings = {
            "http": f"http://{http_address}/broker/n/default",
            "http_token": http_token(secret, NINA),
        }
        with neighbour(**pace(folder, is_small=is_small), **(settings if beside else {})) as working:
            room = Room(
                folder,
                is_small,
                Limits(),
                secret,
                working,
                process,
                trusted or ssl.create_default_context(),
                gateway_config.Limits(**limits),  # type: ignore[arg-type]  # pydantic converts
                # Pydantic converts.
                gateway_config.SubscriberSettings(**subscribers),  # type: ignore[arg-type]
                is_https=trusted is not None,
            )
            room.broker("n", "default", user=NINA)
            room.broker("m", "default")
            room.trigger("n", "to-nina", "default", working.url, user=NINA)
            working.begin()
            yield room
        end(process)


def pace(folder: Path | None = None, *, is_small: bool) -> dict[str, str]:
    """How long the neighbour pauses between two round trips: only the long form needs many.

    There it measures the disk as well, in the folder of the data, if there is one.
    """
    if is_small:
        return {"every_s": "0.05"}
    return {"every_s": "0.02", **({} if folder is None else {DISK: str(folder)})}


def end(process: NodeProcess) -> None:
    """It ends well, after all that was done to it."""
    if process.process is not None and process.process.poll() is None:
        status = process.stop()
        if status != 0:
            message = f"the process ended with {status}: {process.words[-800:]}"
            raise RuntimeError(message)


@contextmanager
def _neighbour_of_node(
    process: NodeProcess, secret: str, *, beside: bool, pace: Mapping[str, str]
) -> Iterator[Neighbour]:
    settings = {"amqp": process.url, "token": token(secret, NINA), "log": "n-log"} if beside else {}
    with neighbour(**pace, **settings) as working:
        working.begin()
        yield working
