"""A standalone cluster on loopback, a Spark Connect server, and the programs that use them: real processes,
which tests may kill.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from tests.spark_connector import sessions

UP_SECONDS_MAX: Final = 300.0
JOB_SECONDS_MAX: Final = 600.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"


def wait_until(
    what: str,
    happened: Callable[[], object],
    *,
    alive: "Process | None" = None,
    seconds: float = UP_SECONDS_MAX,
) -> None:
    """Wait until the condition holds.

    Raises:
        AssertionError: it does not hold in time, or `alive` ended before; the message has the output of
        `alive`.
    """
    deadline = time.monotonic() + seconds
    while not happened():
        words = alive.words[-3000:] if alive else ""
        assert alive is None or alive.process.poll() is None, f"{what}: the process ended: {words}"
        assert time.monotonic() < deadline, f"{what}: not in {seconds:.0f} s: {words}"
        time.sleep(0.05)


class Process:
    """A program with child processes. `kill` ends all of them."""

    def __init__(self, log: Path, command: list[str], environment: dict[str, str]) -> None:
        self._log: Final = log
        with log.open("ab") as words:
            self.process: Final = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=environment,
                start_new_session=True,
            )

    @property
    def words(self) -> str:
        """The output that was written."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9, the children too."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Cluster:
    """A master and two workers of one core each. Use it with `with`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder: Final = folder
        self._environment: Final = sessions.environment(folder / "home") | {
            "SPARK_DAEMON_JAVA_OPTS": f"{sessions.JVM} -Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._started: list[Process] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            master = self._daemon(
                "master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
            )
            wait_until("the master", lambda: _MASTER.search(master.words), alive=master)
            self.url = _MASTER.findall(master.words)[0]
            for number in (1, 2):
                options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700m"]
                self._daemon(
                    f"worker-{number}",
                    "worker.Worker",
                    *options,
                    "--work-dir",
                    str(self._folder / f"work-{number}"),
                    self.url,
                )
            for worker in self._started[1:]:
                wait_until("a worker", lambda worker=worker: _REGISTERED in worker.words, alive=worker)  # type: ignore[misc]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._started:
            one.kill()

    def _daemon(self, name: str, main: str, *options: str) -> Process:
        command = [
            str(self._folder / "home" / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{main}",
            *options,
        ]
        self._started.append(Process(self._folder / f"{name}.log", command, self._environment))
        return self._started[-1]

    def executors(self) -> list[int]:
        """The processes that run tasks now."""
        return [
            pid
            for worker in self._started[1:]
            for pid in descendants(worker.process.pid)
            if "CoarseGrained" in command_of(pid)
        ]


class Connect:
    """A Spark Connect server on two threads of this machine, with the installed connector. Use it with
    `with`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url: Final = f"sc://127.0.0.1:{port}"
        settings = sessions.QUICK | {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "INFO",
        }
        given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(folder / "home" / "bin" / "spark-submit"), "--master", "local[2]", *given]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        self._port: Final = port
        self._process: Final = Process(folder / "server.log", command, sessions.environment(folder / "home"))

    def __enter__(self) -> Self:
        try:
            wait_until("the server", self._listens, alive=self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def _listens(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self._port)) == 0


class Job(Process):
    """A program of jobs.py as a process: the driver."""

    def __init__(self, folder: Path, name: str, **given: Any) -> None:
        self.answer_file: Final = folder / f"{name}.json"
        self.answer_file.unlink(missing_ok=True)
        home = folder / f"{name}-home-{time.monotonic_ns()}"
        command = [
            sys.executable,
            "-m",
            "tests.spark_connector.jobs",
            name,
            json.dumps(given),
            str(self.answer_file),
        ]
        super().__init__(
            folder / f"{name}.log", command, sessions.environment(home) | {"SPARK_LOCAL_IP": "127.0.0.1"}
        )

    def answer(self) -> Any:
        """Return the result of the program, after it has ended."""
        assert self.process.wait(JOB_SECONDS_MAX) == 0, self.words[-5000:]
        return json.loads(self.answer_file.read_text())


def descendants(pid: int) -> list[int]:
    """All descendants of a process that may have ended."""
    try:
        children = [
            int(one)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for one in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [one for child in children for one in (child, *descendants(child))]


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def kill(pid: int) -> None:
    """kill -9 of one process that may have ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
