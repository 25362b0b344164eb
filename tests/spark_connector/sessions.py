"""Spark for tests: a JVM that starts quickly and works on two threads.

Half of the CPU time that one with defaults takes.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from examples import java

# The compiler that takes long for faster code pays only after minutes.
JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
QUICK: Final = {
    "spark.driver.extraJavaOptions": JVM,
    "spark.executor.extraJavaOptions": JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP each Python task takes 30 ms more
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
STOP_SECONDS_MAX: Final = 30


def home(folder: Path) -> Path:
    """A SPARK_HOME of links in `folder`, where Spark may write, and no zipped Python: workers use the
    installed, compiled one.
    """
    installed = Path(pyspark.__file__).parent
    folder.mkdir(parents=True)
    for name in ("bin", "jars", "sbin"):
        (folder / name).symlink_to(installed / name)
    (folder / "RELEASE").touch()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment for a process that starts Spark. `folder` becomes its SPARK_HOME. Installs Java
    if it is missing.
    """
    java.provide()
    given = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **given,
        "SPARK_HOME": str(home(folder)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": JVM,
    }


def start(folder: Path, master: str = "local[2]", **more: str) -> SparkSession:
    """Start a session whose files are all in `folder`. A process has one session."""
    os.environ.update(environment(folder / "home"))
    settings = {
        **QUICK,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **more,
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop(session: SparkSession) -> None:
    """End the session and its JVM, and wait for their end."""
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()  # that is what it waits for
    process.wait(STOP_SECONDS_MAX)
    SparkContext._gateway = SparkContext._jvm = None
