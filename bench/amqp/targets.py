"""The brokers that are measured: how each is started, stopped and addressed, and one run of the generator."""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from bench.amqp.processes import BIN, HERE, Process, end_process, free_port, process_tree

LOAD = os.path.join(BIN, "amqp_load")

Options = argparse.Namespace
Result = dict[str, Any]
"""What the generator reports, and what is computed from it, as it is written to the results file."""


class Target:
    kind = "queue"  # a queue is emptied by reading, a stream is not
    durable = False  # set the durable header on what is sent
    durability = ""  # what an accepted message has survived, in words
    count = 100000
    warmup = 0  # messages sent and received before anything is measured
    partitions: tuple[str, ...] = ()
    send_args: tuple[str, ...] = ()
    recv_args: tuple[str, ...] = ()
    latency_recv_args: tuple[str, ...] = ()
    recovers = False  # promises to have accepted messages after a crash
    restart_each = False  # a fresh broker before every measurement
    started_here = True
    version = ""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.port = free_port()
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.dir = os.path.join(options.work, name)
        self.process: Process | None = None
        self.number = 0

    def command(self) -> list[str]:
        raise NotImplementedError

    def unavailable(self) -> str | None:
        return None

    def fresh_dir(self) -> None:
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)

    def spawn(self, argv: Sequence[str], log: str = "broker.log", **options: Any) -> Process:
        with open(os.path.join(self.dir, log), "ab") as out:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **options
            )

    def start(self, *, fresh: bool = True) -> float | None:
        """Start, as a rule with an empty data folder; seconds until a message is accepted."""
        if fresh:
            self.configure()
        began = time.monotonic()
        self.process = self.spawn(self.command())
        return self.await_first_message(began, self.cold_address())

    def configure(self) -> None:
        """Make an empty data folder, with the broker's settings."""
        self.fresh_dir()

    def await_first_message(self, began: float, address: str) -> float:
        error = ""
        while time.monotonic() - began < self.options.start_timeout:
            if self.process and self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode} while starting")
            result = load("send", self, address, ["--count", "1", "--timeout", "3"])
            if result["ok"]:
                return time.monotonic() - began
            error = result["error"]
            time.sleep(0.01)
        raise RuntimeError(f"{self.name} accepted no message in time: {error}")

    def stop(self) -> None:
        if self.process:
            end_process(self.process)
            self.process = None

    def crash(self) -> None:
        """End the broker without a chance to save anything."""
        assert self.process is not None
        for pid in process_tree(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def pids(self) -> list[int]:
        return process_tree(self.process.pid) if self.process else []

    def cold_address(self) -> str:
        return "cold"

    def new_address(self) -> str:
        self.number += 1
        return f"bench-{self.number}"

    def prepare(self, address: str) -> None:
        """Create what the address needs before a measurement."""

    def discard(self, address: str) -> None:
        """Remove what a measurement left behind."""


class QueueBroker(Target):
    durability = "none: messages are in memory only"
    count = 500000

    def command(self) -> list[str]:
        return [os.path.join(BIN, "queue_broker"), f"127.0.0.1:{self.port}"]


class QueueBrokerLog(QueueBroker):
    durability = "appended to one file and fdatasync before accept, one sync per event-loop turn"
    durable = True

    def command(self) -> list[str]:
        return [*super().command(), "--log", os.path.join(self.dir, "log")]


class ProtonExample(Target):
    durability = "none: messages are in memory only"
    count = 30000  # its queue is an array shifted on every take

    def unavailable(self) -> str | None:
        if not os.path.exists(os.path.join(BIN, "proton_example_broker")):
            return "the Qpid Proton C examples are not installed"
        return None

    def command(self) -> list[str]:
        return [os.path.join(BIN, "proton_example_broker"), "127.0.0.1", str(self.port)]


class PyBroker(Target):
    durability = "none: messages are in memory only"
    count = 50000
    extra: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        check = subprocess.run(
            [self.options.python, "-c", "import proton; print(proton.VERSION)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if check.returncode:
            return f"{self.options.python} has no python-qpid-proton"
        return None

    def command(self) -> list[str]:
        return [
            self.options.python,
            os.path.join(HERE, "py_broker.py"),
            f"127.0.0.1:{self.port}",
            *self.extra,
        ]


class PyBrokerRaw(PyBroker):
    extra = ("--raw",)


class ActiveMQ(Target):
    durable = recovers = True
    durability = "KahaDB journal; accepted after fdatasync of a journal batch (default settings)"
    count = 20000
    warmup = 20000  # the Java compiler needs some work to look at

    def unavailable(self) -> str | None:
        if not os.path.exists(os.path.join(self.options.activemq_lib, "activemq-amqp.jar")):
            return "no activemq-amqp.jar (--activemq-lib)"
        if not os.path.exists(os.path.join(BIN, "ActiveMQBroker.class")):
            return "bin/ActiveMQBroker.class is missing (make activemq)"
        return None

    def command(self) -> list[str]:
        return [
            "java",
            "-cp",
            f"{BIN}:{self.options.activemq_lib}/*",
            "ActiveMQBroker",
            str(self.port),
            self.dir,
        ]

    def cold_address(self) -> str:
        return "queue://cold"

    def new_address(self) -> str:
        return "queue://" + super().new_address()


class Custom(Target):
    """--target NAME=URL,ADDRESS[,key=value ...][,cmd=COMMAND]"""

    def __init__(self, text: str, options: Options) -> None:
        name, _, rest = text.partition("=")
        head, _, cmd = rest.partition(",cmd=")
        parts = head.split(",")
        if not re.fullmatch(r"[\w.-]+", name) or len(parts) < 2:
            raise SystemExit(f"--target wants NAME=URL,ADDRESS[,key=value...]: {text}")
        super().__init__(name, options)
        keys = {key: value for key, _, value in (part.partition("=") for part in parts[2:])}
        known = {"kind", "durable", "pid", "setup", "count", "partitions", "note", "restart", "send", "recv"}
        if set(keys) - known:
            raise SystemExit(f"--target {name}: unknown key {sorted(set(keys) - known)}")
        self.cmd = cmd
        self.started_here = bool(cmd)
        self.url = parts[0].replace("{port}", str(self.port))
        self.template = parts[1]
        self.kind = keys.get("kind", "queue")
        self.durable = keys.get("durable", "0") == "1"
        self.recovers = self.durable and bool(cmd)
        self.durability = keys.get("note", "")
        self.pid = int(keys.get("pid", 0))
        self.setup = keys.get("setup", "")
        self.count = int(keys.get("count", self.count))
        self.partitions = tuple(p for p in keys.get("partitions", "").split("+") if p)
        self.send_args = tuple(shlex.split(keys.get("send", "")))
        if self.kind == "stream":
            self.recv_args = ("--es-offset", "@earliest")
            self.latency_recv_args = ("--es-offset", "@latest")
        self.recv_args += tuple(shlex.split(keys.get("recv", "")))
        # a log that cannot be given a new name per measurement gets a new broker
        self.restart_each = bool(cmd) and keys.get("restart", "0" if "{n}" in self.template else "1") == "1"

    def fill(self, text: str) -> str:
        python = str(self.options.python)
        return text.replace("{port}", str(self.port)).replace("{dir}", self.dir).replace("{python}", python)

    def start(self, *, fresh: bool = True) -> float | None:
        if not self.cmd:
            return None
        if fresh:
            self.fresh_dir()
        began = time.monotonic()
        self.process = self.spawn(["sh", "-c", "exec " + self.fill(self.cmd)])
        return self.await_first_message(began, self.cold_address())

    def pids(self) -> list[int]:
        pid = self.process.pid if self.process else self.pid
        return process_tree(pid) if pid else []

    def cold_address(self) -> str:
        return self.template.replace("{n}", "cold")

    def new_address(self) -> str:
        self.number += 1
        return self.template.replace("{n}", f"{os.getpid()}-{self.number}")

    def prepare(self, address: str) -> None:
        if self.setup:
            subprocess.run(
                ["sh", "-c", self.fill(self.setup).replace("{address}", address)],
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=120,
            )


def load(mode: str, target: Target, address: str, args: Sequence[object]) -> Result:
    argv = [LOAD, mode, "--url", target.url, "--address", address, *map(str, args)]
    if target.durable and mode != "recv":
        argv.append("--durable")
    if mode != "recv":
        argv.extend(target.send_args)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
        result: Result = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as e:
        return {"ok": False, "error": f"{type(e).__name__}: {e}", "client_cpu_s": 0}
    return result
