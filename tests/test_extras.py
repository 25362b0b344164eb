"""Each extra has the libraries that its part needs: no other library can be imported in the test's
process.
"""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from examples.node import NodeProcess
from service_parts.extras import DISTRIBUTION

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {path.parent.name for path in ROOT.glob("*/py.typed")}
PROCESS_S_MAX = 120.0
_PRELUDE = """
import sys
known = {known!r} | sys.stdlib_module_names
class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in known and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
for name in [name for name in sys.modules if name.partition(".")[0] not in known | {{"__main__"}}]:
    del sys.modules[name]
sys.meta_path.insert(0, Absent())
"""


def wanted(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    """Return what a distribution requires with some of its extras: ours as pyproject.toml says now, others as
    they were installed.
    """
    if canonicalize_name(name) == DISTRIBUTION:
        texts = [
            *PROJECT["dependencies"],
            *(text for extra in extras for text in PROJECT["optional-dependencies"][extra]),
        ]
    else:
        texts = requires(name) or []
    for requirement in map(Requirement, texts):
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            yield requirement


@cache
def distributions() -> Mapping[str, list[str]]:
    """The distributions of each module: read once, because they list thousands of files."""
    return packages_distributions()


@cache
def libraries(extra: str | None) -> frozenset[str]:
    """The modules that an installation with the extra has, in addition to Python's own."""
    found: set[tuple[str, frozenset[str]]] = set()
    left = [(DISTRIBUTION, frozenset({extra} if extra else ()))]
    while left:
        name, extras = left.pop()
        if (name, extras) not in found:
            found.add((name, extras))
            left += [(canonicalize_name(one.name), frozenset(one.extras)) for one in wanted(name, extras)]
    names = {name for name, _ in found}
    modules = {
        module
        for module, homes in distributions().items()
        if names & {canonicalize_name(home) for home in homes}
    }
    return frozenset(modules | PACKAGES)


def process(extra: str | None, code: str, *arguments: str, also: frozenset[str] = frozenset()) -> list[str]:
    """The command of a Python that has only the libraries of an extra."""
    return [sys.executable, "-c", _PRELUDE.format(known=set(libraries(extra) | also)) + code, *arguments]


def done(command: list[str], **variables: str) -> tuple[int, str, str]:
    """Return how a process ended, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    answer = subprocess.run(
        command,
        env=environment,
        input="21\n",
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
    )
    return answer.returncode, answer.stdout, answer.stderr


NODE = "from amqp_streams.cli import main; main(prog_name='amqp-streams')"
GATEWAY = "from knative_gateway.cli import main; main(prog_name='knative-gateway')"


def test_the_base_has_no_library_of_an_extra() -> None:
    assert {"amqp_streams", "proton", "click", "rich", "uvloop", "websockets"} <= libraries(None)
    for library in (
        "pydantic",
        "sqlalchemy",
        "uvicorn",
        "starlette",
        "structlog",
        "argon2",
        "cryptography",
        "jwt",
        "lz4",
        "pyspark",
        "yaml",
        "zstandard",
    ):
        assert library not in libraries(None)
        assert library not in libraries("spark") or library == "pyspark"
        assert library in libraries("all")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("extras")) as running:
        yield running


@pytest.mark.timeout(600)
def test_the_client_and_its_commands_need_no_extra(node: NodeProcess) -> None:
    for words in (
        "log create temps --partitions 2",
        "send temps --key kitchen",
        "info temps",
        "receive temps --from earliest --max 1",
        "receive temps --from earliest --group all --max 1",
        "log list",
        "log describe temps",
        "group list temps",
        "cursor list temps",
    ):
        status, _, complaint = done(process(None, NODE, *words.split()), AMQP_STREAMS_URL=node.url)
        assert status == 0, (words, complaint)
    code = """
from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect
with connect(sys.argv[1]) as client, client.consumer("temps", start=EARLIEST) as consumer:
    print(consumer.receive(max_events=1)[0].body)
"""
    assert done(process(None, code, node.url)) == (0, "b'21'\n", "")


@pytest.mark.parametrize("extra", [None, "node"])
def test_compression_names_the_extra_that_it_needs(extra: str | None) -> None:
    status, _, told = done(process(extra, NODE, "send", "temps", "--compression", "zstd"))
    assert status == 2
    assert "compression with zstd needs the compression extra: pip install" in told


@pytest.mark.parametrize(
    "words",
    [["serve", "--data-dir", "d"], ["user", "list", "--users", "u"], ["verify", "."], ["dump", ".", "temps"]],
)
def test_a_command_of_the_node_names_the_extra_that_it_needs(words: list[str]) -> None:
    told = f"amqp-streams: {words[0]} needs the node extra: pip install 'amqp-event-streams[node]'\n"
    assert done(process(None, NODE, *words)) == (2, "", told)
    assert done(process(None, NODE, words[0], "--help")) == (2, "", told)


@pytest.mark.parametrize("extra", [None, "node", "spark"])
def test_the_gateway_names_the_extra_that_it_needs(extra: str | None) -> None:
    told = "knative-gateway: serve needs the gateway extra: pip install 'amqp-event-streams[gateway]'\n"
    assert done(process(extra, GATEWAY, "serve", "--listen", "127.0.0.1:0", "--state-dir", "/proc/none")) == (
        2,
        "",
        told,
    )


def test_the_node_extra_runs_a_node(tmp_path: Path) -> None:
    class Limited(NodeProcess):
        """A node that has only the libraries of its extra."""

        def command(self) -> list[str]:
            words = super().command()
            return process("node", NODE, *words[words.index("serve") :])

    with Limited(tmp_path, "--admin-listen", "127.0.0.1:0", log="events:1") as running:
        status, _, complaint = done(process(None, NODE, "info", "events"), AMQP_STREAMS_URL=running.url)
        assert status == 0, complaint
    assert done(process("node", NODE, "verify", str(running.data_dir)))[0] == 0


def test_the_gateway_extra_starts_a_gateway_with_a_node_of_its_own(tmp_path: Path) -> None:
    code = """
import asyncio, os, signal
from knative_gateway.config import GatewaySettings
from service_parts.settings.listeners import Listener
from knative_gateway.server import run
settings = GatewaySettings(listen=(Listener(host="127.0.0.1", port=0),), state_dir=sys.argv[1])
sys.exit(run(settings, ready=lambda found: (print(*found), os.kill(os.getpid(), signal.SIGTERM))))
"""
    status, words, complaint = done(process("gateway", code, str(tmp_path / "state")))
    assert status == 0, complaint
    assert "http" in words.split()


@pytest.mark.parametrize("extra", [None, "node"])
def test_the_console_names_the_extra_that_it_needs(extra: str | None) -> None:
    told = "amqp-streams: console needs the console extra: pip install 'amqp-event-streams[console]'\n"
    assert done(process(extra, NODE, "console")) == (2, "", told)


def test_the_console_extra_runs_a_console(node: NodeProcess, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = process(
        "console", NODE, "console", "--url", node.url, "--listen", "127.0.0.1:0", "--ready-file", str(ready)
    )
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as console:
        try:
            while not ready.exists():
                assert console.poll() is None
                time.sleep(0.01)
            address = json.loads(ready.read_text())["console"][0]
            page = urlopen(f"http://{address}/login", timeout=PROCESS_S_MAX).read()
            assert b"Continue without a login" in page
        finally:
            console.terminate()
    assert console.returncode == 0


def test_the_console_of_a_gateway_needs_the_same_extra(tmp_path: Path) -> None:
    told = "knative-gateway: console needs the console extra: pip install 'amqp-event-streams[console]'\n"
    assert done(process("gateway", GATEWAY, "console")) == (2, "", told)
    code = f"{GATEWAY[:-1]}, args=['console', '--server', 'ftp://x'])"
    status, _, complaint = done(process("console", code))
    assert status == 2
    assert "is not an http:// or https:// URL" in complaint


def test_conversions_of_cloudevents_name_the_extra_that_they_need() -> None:
    code = "import amqp_streams.client.cloudevents"
    status, _, complaint = done(process(None, code))
    assert status == 1
    words = (
        "amqp_streams.client.cloudevents needs the cloudevents extra: pip install"
        " 'amqp-event-streams[cloudevents]'"
    )
    assert complaint.endswith(f"MissingExtraError: {words}\n")
    assert done(process("cloudevents", code)) == (0, "", "")


def test_the_example_of_cloudevents_runs_with_its_extra(node: NodeProcess) -> None:
    code = (
        "import runpy; sys.argv = ['example', sys.argv[1]]; runpy.run_path('examples/client_cloudevents.py',"
        " run_name='__main__')"
    )
    status, words, complaint = done(process("cloudevents", code, node.url))
    assert status == 0, complaint
    assert sorted(words.splitlines()) == [
        "temperature.measured in the cellar: {'celsius': 12.25}",
        "temperature.measured in the hall: {'celsius': 18.0}",
        "temperature.measured in the kitchen: {'celsius': 20.5}",
    ]


def test_traces_name_the_extra_that_they_need() -> None:
    code = "from knative_gateway import tracing; tracing.exporting('http://127.0.0.1:1')"
    status, _, complaint = done(process("gateway", code))
    assert status == 1
    assert complaint.endswith(
        "ConfigError: the setting traces needs the tracing extra: pip install 'amqp-event-streams[tracing]'\n"
    )


def test_spark_tables_name_the_extra_that_they_need() -> None:
    """A cluster brings its own PySpark. PyArrow comes with the extra."""
    code = """
from pyspark.sql.types import LongType, StructField, StructType
from pyspark_amqpstreams import DefaultSource
getattr(DefaultSource({"endpoint": "amqp://127.0.0.1:1", "path": "temps"}), sys.argv[1])(*eval(sys.argv[2]))
"""
    spark = frozenset({"pyspark", "py4j"})
    schema = "(StructType([StructField('offset', LongType())]),)"
    for method, arguments in (("reader", schema), ("writer", f"(*{schema}, False)")):
        status, _, complaint = done(process(None, code, method, arguments, also=spark))
        assert status == 1
        words = "format(\"amqpstreams\") needs the spark extra: pip install 'amqp-event-streams[spark]'"
        assert re.search(rf"MissingExtraError: {re.escape(words)}\n$", complaint), complaint
