"""RabbitMQ, versions 3 and 4, each with its own data, ports and Erlang port mapper."""

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from bench.amqp.processes import Process, end_process, free_port, process_tree
from bench.amqp.targets import Options, Target
from bench.products.install import private_root


class Rabbit(Target):
    queue_type = "classic"
    durable = recovers = True
    root = ""  # the root of a file system that RabbitMQ is installed in

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}"
        self.dist_port, self.epmd_port, self.stream_port = free_port(), free_port(), free_port()
        self.inner = os.path.join("/tmp", "bench-" + name) if self.root else self.dir
        self.dir = self.root + self.inner
        self.epmd: Process | None = None
        base = self.root + "/usr/lib/rabbitmq/lib"
        names = sorted(os.listdir(base)) if os.path.isdir(base) else []
        self.version = names[-1].rsplit("-", 1)[1] if names else ""
        self.v4 = self.version.startswith("4")
        if self.queue_type == "stream":
            self.kind = "stream"
            if not self.v4:
                self.count = 60000  # 3.10 stops delivering on a link soon after 65535 messages
            plain = () if self.v4 else ("--rabbit-plain",)
            self.recv_args = ("--rabbit-offset", "first", *plain)
            self.latency_recv_args = ("--rabbit-offset", "next", *plain)

    def unavailable(self) -> str | None:
        if not self.version:
            return f"RabbitMQ is not installed in {self.root or '/'}"
        if not self.root and not shutil.which("epmd"):
            return "epmd is not installed"
        return None

    def environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": self.inner,
            "RABBITMQ_NODENAME": f"{self.name.replace('-', '_')}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_MNESIA_BASE": self.inner + "/mnesia",
            "RABBITMQ_LOG_BASE": self.inner + "/log",
            "RABBITMQ_CONFIG_FILE": self.inner + "/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.inner + "/enabled_plugins",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": self.inner + "/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def inside(self, argv: list[str]) -> list[str]:
        return private_root(Path(self.root), argv) if self.root else argv

    def write(self, name: str, text: str) -> None:
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(text)

    def start(self, *, fresh: bool = True) -> float | None:
        if fresh:
            self.configure()
        self.epmd = self.spawn(
            self.inside(["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"]), "epmd.log"
        )
        began = time.monotonic()
        self.process = self.spawn(
            self.inside(["/usr/lib/rabbitmq/bin/rabbitmq-server"]),
            env=self.environment(),
            cwd=None if self.root else self.dir,
        )
        return self.await_first_message(began, self.cold_address())

    def configure(self) -> None:
        self.fresh_dir()
        salt = b"salt"
        password = base64.b64encode(salt + hashlib.sha256(salt + b"guest").digest()).decode()
        self.write(
            "definitions.json",
            json.dumps(
                {
                    "vhosts": [{"name": "/"}],
                    "users": [
                        {
                            "name": "guest",
                            "password_hash": password,
                            "tags": "administrator",
                            "hashing_algorithm": "rabbit_password_hashing_sha256",
                        }
                    ],
                    "permissions": [
                        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
                    ],
                    "queues": [
                        {
                            "name": "cold",
                            "vhost": "/",
                            "durable": True,
                            "auto_delete": False,
                            "arguments": {"x-queue-type": self.queue_type},
                        }
                    ],
                }
            ),
        )
        self.write(
            "rabbitmq.conf",
            "\n".join(
                [
                    f"listeners.tcp.1 = 127.0.0.1:{self.port}",
                    f"stream.listeners.tcp.1 = 127.0.0.1:{self.stream_port}",
                    f"load_definitions = {self.inner}/definitions.json",
                    "log.console = false",
                    "",
                ]
            ),
        )
        self.write(
            "enabled_plugins", "[rabbitmq_stream]." if self.v4 else "[rabbitmq_amqp1_0,rabbitmq_stream]."
        )

    def stop(self) -> None:
        try:
            with open(os.path.join(self.dir, "pid")) as f:
                pid = int(f.read())
            if self.process and pid in process_tree(self.process.pid):
                os.kill(pid, signal.SIGTERM)  # the node itself, for an orderly end
                self.process.wait(40)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            pass
        super().stop()
        if self.epmd:
            end_process(self.epmd)
            self.epmd = None

    def crash(self) -> None:
        super().crash()
        assert self.epmd is not None
        end_process(self.epmd)
        self.epmd = None

    def ctl(self, *argv: str) -> str:
        done = subprocess.run(
            self.inside(["/usr/lib/rabbitmq/bin/rabbitmqctl", "-q", *argv]),
            capture_output=True,
            text=True,
            env=self.environment(),
            cwd="/",
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {argv[0]}: {done.stdout} {done.stderr}")
        return done.stdout

    def queue_address(self, queue: str) -> str:
        return f"/queues/{queue}" if self.v4 else f"/amq/queue/{queue}"

    def cold_address(self) -> str:
        return self.queue_address("cold")

    def new_address(self) -> str:
        self.number += 1
        return self.queue_address(f"bench-{self.number}")

    def prepare(self, address: str) -> None:
        queue = address.rsplit("/", 1)[1]
        self.ctl(
            "eval",
            f'rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>), true, false, '
            f'[{{<<"x-queue-type">>, longstr, <<"{self.queue_type}">>}}], none, <<"guest">>), ok.',
        )

    def discard(self, address: str) -> None:
        self.ctl("delete_queue", address.rsplit("/", 1)[1])


DURABILITY = {
    (
        "3",
        "classic",
    ): "durable queue, durable message; accepted after an fsync shared by what arrived meanwhile",
    (
        "4",
        "classic",
    ): "durable queue, durable message; accepted once written to the operating system, no fsync",
    ("3", "quorum"): "one-member Raft log; accepted after fdatasync of a write-ahead log batch",
    ("4", "quorum"): "one-member Raft log; accepted after fdatasync of a write-ahead log batch",
    ("3", "stream"): "one-replica log; accepted once written to the operating system, no fsync",
    ("4", "stream"): "one-replica log; accepted once written to the operating system, no fsync",
}


def rabbit_class(queue_type: str, root: str) -> type[Rabbit]:
    return type("Rabbit_" + queue_type, (Rabbit,), {"queue_type": queue_type, "root": root.rstrip("/")})
