"""Apache Artemis and Apache Qpid Broker-J, from the archives that `make peers` unpacks."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from bench.amqp.processes import Process
from bench.amqp.targets import Options, Target
from bench.products.places import home, why_missing

_ACCEPTOR = (
    '<acceptors><acceptor name="amqp">tcp://127.0.0.1:%d?tcpSendBufferSize=1048576;'
    "tcpReceiveBufferSize=1048576;protocols=AMQP;useEpoll=true;amqpCredits=1000;amqpLowCredits=300;"
    "amqpMinLargeMessageSize=102400;amqpDuplicateDetection=true;anycastPrefix=queue://"
    "</acceptor></acceptors>"
)
_TIMEOUT = "<journal-buffer-timeout>%d</journal-buffer-timeout>"


class Artemis(Target):
    """An instance made with `artemis create`, with its default settings and only the AMQP acceptor."""

    durable = recovers = True
    count = 60000
    warmup = 60000  # the Java compiler needs some work to look at
    tuned: ClassVar[int] = 0
    """The journal's buffer timeout, ns. `artemis create` finds it with a test of the disk, once in a run."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        self.home = _unpacked("artemis", "apache-artemis-*")
        self.version = jar_version(self.home, "artemis-server-")

    def unavailable(self) -> str | None:
        return None if self.version else why_missing("artemis")

    def configure(self) -> None:
        self.fresh_dir()
        argv = [os.path.join(self.home, "bin", "artemis"), "create", "--silent", "--force", "--aio"]
        argv += ["--user", "bench", "--password", "bench", "--allow-anonymous", "--name", "bench"]
        argv += ["--host", "127.0.0.1", "--no-web", "--no-mqtt-acceptor", "--no-stomp-acceptor"]
        argv += ["--no-hornetq-acceptor", *(["--no-autotune"] if Artemis.tuned else [])]
        argv.append(os.path.join(self.dir, "i"))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        file = os.path.join(self.dir, "i", "etc", "broker.xml")
        if done.returncode or not os.path.exists(file):
            raise RuntimeError(f"artemis create: {done.stdout} {done.stderr}")
        with open(file) as f:
            text = f.read()
        text = self._with_timeout(text)
        text, changed = re.subn(
            "<acceptors>.*</acceptors>", lambda _: _ACCEPTOR % self.port, text, flags=re.DOTALL
        )
        assert changed == 1
        with open(file, "w") as f:
            f.write(text)

    def _with_timeout(self, text: str) -> str:
        """The settings with the buffer timeout of this run: each start has the same."""
        found = re.search(_TIMEOUT.replace("%d", r"(\d+)"), text)
        if not Artemis.tuned:
            assert found is not None
            Artemis.tuned = int(found[1])
        elif found:
            text = text.replace(found[0], _TIMEOUT % Artemis.tuned)
        else:  # without a test of the disk there is no such line
            text = text.replace("<journal-max-io>", _TIMEOUT % Artemis.tuned + "<journal-max-io>", 1)
        kind = re.search("<journal-type>(.*)</journal-type>", text)
        self.durability = (
            f"journal {kind[1] if kind else '?'}, datasync, buffer timeout {Artemis.tuned} ns; accepted once"
            " the journal is synced (default settings)"
        )
        return text

    def command(self) -> list[str]:
        return [os.path.join(self.dir, "i", "bin", "artemis"), "run"]

    def cold_address(self) -> str:
        return "queue://cold"

    def new_address(self) -> str:
        return "queue://" + super().new_address()


class QpidJ(Target):
    """A broker with a Berkeley DB store; the first link to a queue creates the queue."""

    durable = recovers = True
    durability = (
        "Berkeley DB Java Edition; accepted after its log is synced, one sync for all that wait (default"
        " settings)"
    )
    count = 30000
    warmup = 30000
    memory = "-Xmx512m -XX:MaxDirectMemorySize=1536m"  # as in its bin/qpid-server

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        self.home = _unpacked("qpid-j", "qpid-broker/*")
        self.version = jar_version(self.home, "qpid-broker-core-")

    def unavailable(self) -> str | None:
        return None if self.version else why_missing("qpid-j")

    def spawn(self, argv: Sequence[str], log: str = "broker.log", **options: Any) -> Process:
        # It writes files into its working folder.
        return super().spawn(argv, log, cwd=self.dir, **options)

    def configure(self) -> None:
        self.fresh_dir()
        queue = {"durable": True, "lifetimePolicy": "PERMANENT"}
        policy = {
            "pattern": "(cold|bench-.*)",
            "nodeType": "queue",
            "createdOnPublish": True,
            "createdOnConsume": True,
            "attributes": queue,
        }
        host = {
            "name": "default",
            "type": "BDB",
            "defaultVirtualHostNode": "true",
            "virtualHostInitialConfiguration": json.dumps(
                {"type": "ProvidedStore", "nodeAutoCreationPolicies": [policy]}
            ),
        }
        port = {
            "name": "AMQP",
            "type": "AMQP",
            "port": str(self.port),
            "bindingAddress": "127.0.0.1",
            "protocols": ["AMQP_1_0"],
            "authenticationProvider": "anyone",
            "virtualhostaliases": [
                {"name": name, "type": f"{name}Alias"} for name in ("hostname", "default", "name")
            ],
        }
        whole = {
            "name": "bench",
            "modelVersion": "9.0",
            "authenticationproviders": [{"name": "anyone", "type": "Anonymous"}],
            "ports": [port],
            "virtualhostnodes": [host],
        }
        with open(os.path.join(self.dir, "initial-config.json"), "w") as f:
            json.dump(whole, f, indent=1)

    def command(self) -> list[str]:
        settings = [f"-Dqpid.home={self.home}", f"-DQPID_HOME={self.home}", f"-DQPID_WORK={self.dir}"]
        config = os.path.join(self.dir, "initial-config.json")
        argv = ["java", "-server", *shlex.split(self.memory), "-XX:+UseG1GC", *settings]
        return [
            *argv,
            "-cp",
            os.path.join(self.home, "lib", "*"),
            "org.apache.qpid.server.Main",
            "-icp",
            config,
        ]


def jar_version(folder: str, start: str) -> str:
    """The version in the name of a jar below `folder`/lib; empty if the jar does not exist."""
    names = [path.name for path in Path(folder, "lib").glob(f"{start}*.jar")] if folder else []
    found = [name[len(start) : -4] for name in names if re.fullmatch(r"[0-9.]+\.jar", name[len(start) :])]
    return found[0] if found else ""


def _unpacked(name: str, pattern: str) -> str:
    """The folder with `lib` of an unpacked archive; empty if it does not exist."""
    place = home(name)
    found = sorted(place.glob(pattern)) if place else []
    return str(found[0]) if found else ""
