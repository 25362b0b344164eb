"""The services of docker-compose.yml that need passwords, certificates or Spark run as processes.

`tests/acceptance/test_compose.py` runs those of the profile `cluster`.
"""

import asyncio
import http.client
import os
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncpg
import pytest

from amqp_streams.client import AuthenticationError, ConnectError, Event
from amqp_streams.client.blocking import connect
from amqp_streams.client.options import TlsOptions
from examples import java
from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from service_parts.certificate_expiry import expires_at
from tests.acceptance.shared import BROKER, RESOURCES
from tests.acceptance.test_compose import GatewayService, Service
from tests.deploy.scene import free_port, got, wait_for
from tests.forks import shared_folder
from tests.knative_gateway import postgresql
from tests.test_compose import PROGRAMS, ROOT, SERVICES, cluster, own_environment, placed, words

SCRIPTS = ROOT / "deploy" / "compose"
PLAIN = {"0.0.0.0:5672": "127.0.0.1:0", "0.0.0.0:8672": "127.0.0.1:0", "0.0.0.0:8080": "127.0.0.1:0"}


def once(name: str, folder: Path, places: Mapping[str, str] | None = None, *, status: int = 0) -> str:
    """Run a service that ends; `folder` takes the place of its volume. Returns what it prints."""
    line = [placed(word, folder) for word in words(SERVICES[name])]
    line = [word.replace("/deploy/", f"{SCRIPTS}/") for word in line]
    for old, new in (places or {}).items():
        line = [word.replace(old, new) for word in line]
    Path(line[2]).mkdir(parents=True, exist_ok=True)
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    done = subprocess.run(
        line, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def health(name: str, **places: str) -> None:
    """Run the health check of a service."""
    _, program, *arguments = SERVICES[name]["healthcheck"]["test"]
    assert program == "python"
    for old, new in places.items():
        arguments = [argument.replace(f"127.0.0.1:{old[1:]}", new) for argument in arguments]
    subprocess.run([sys.executable, *arguments], check=True, timeout=60)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with postgresql.server(shared_folder(tmp_path_factory)) as directory:
        yield directory


def with_password(database: Path, password: str) -> None:
    """Make the user and the database of the service `database`, and let the user in by its password only."""

    async def made() -> None:
        connection = await asyncpg.connect(host=str(database), user="tester", database="postgres")
        await connection.execute(f"CREATE ROLE gateway LOGIN PASSWORD '{password}'")
        await connection.execute("CREATE DATABASE gateway OWNER gateway")
        rules = database / "data" / "pg_hba.conf"
        rules.write_text("local all gateway scram-sha-256\nlocal all all trust\n")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()

    asyncio.run(made())


def test_passwords_are_random_readable_by_their_service_only_and_kept(tmp_path: Path) -> None:
    once("passwords", tmp_path)
    files = {file.name: file for file in (tmp_path / "secrets").iterdir()}
    assert files.keys() == {"database", "grafana", "pgpass"}
    before = {name: file.read_text() for name, file in files.items()}
    assert {mode(file) for file in files.values()} == {0o600}
    assert len(before["database"]) > 30
    assert before["database"] != before["grafana"]
    hosts = ("database", "cluster-database")
    lines = [f"{host}:5432:gateway:gateway:{before['database']}\n" for host in hosts]
    assert before["pgpass"] == "".join(lines)
    once("passwords", tmp_path)
    assert {name: file.read_text() for name, file in files.items()} == before


def test_the_gateway_finds_its_password_in_the_file(tmp_path: Path, database: Path) -> None:
    once("passwords", tmp_path)
    secrets = tmp_path / "secrets"
    with_password(database, (secrets / "database").read_text())
    # asyncpg looks for the host of a socket under this name.
    (secrets / "pgpass").write_text((secrets / "pgpass").read_text().replace("database:", "localhost:"))
    with NodeProcess(tmp_path / "node", log="events:4") as node:
        places = {
            **PLAIN,
            "amqp://node:5672": node.url,
            "@database/gateway": f"@/gateway?host={database}",
            "/secrets": str(secrets),
            "/var/lib/amqp-streams": str(tmp_path / "gateway"),
        }
        with GatewayService(tmp_path / "gateway", "gateway", places) as gateway:
            gateway.apply(RESOURCES.format(url="http://127.0.0.1:9/"))
            sender = Sender(gateway.http, BROKER)
            assert sender.send({"id": "1", "source": "/compose", "type": "t"}, b"{}") == 202
            sender.close()
            health("gateway", _8080=gateway.http)
            assert gateway.stop() == 0, gateway.words
        (secrets / "pgpass").write_text("localhost:5432:gateway:gateway:wrong\n")
        with pytest.raises(RuntimeError, match="password authentication failed"):
            GatewayService(tmp_path / "other", "gateway", places).start()


@pytest.mark.parametrize("name", cluster("node"))
def test_the_nodes_of_the_cluster_have_valid_settings_and_files(name: str, tmp_path: Path) -> None:
    once("node-certificates", tmp_path)
    made = {file.name: file for file in (tmp_path / "nodes").iterdir()}
    assert not {"users", "password", "token"} & made.keys(), "nodes need none of these"
    assert {mode(made[name]) for name in ("secret", "server.key", "ca.key")} == {0o600}
    before = {name: file.read_bytes() for name, file in made.items()}
    assert "made" not in once("node-certificates", tmp_path)
    assert "got 'node'" in once("node-certificates", tmp_path, {"nodes": "node"}, status=2)
    assert {name: file.read_bytes() for name, file in made.items()} == before
    program, *arguments = words(SERVICES[name])
    done = subprocess.run(
        [PROGRAMS / program, *(placed(argument, tmp_path) for argument in arguments), "--check"],
        env=own_environment(SERVICES[name]["environment"], tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_console_answers(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", log="events:4") as node:
        address = f"127.0.0.1:{free_port()}"
        program, *arguments = words(SERVICES["console"])
        line = [
            str(PROGRAMS / program),
            *(
                argument.replace("0.0.0.0:8081", address).replace("amqp://node:5672", node.url)
                for argument in arguments
            ),
        ]
        with (tmp_path / "console.log").open("wb") as log:
            process = subprocess.Popen(line, stdout=log, stderr=log)
        try:
            wait_for(lambda: _healthy(address), (tmp_path / "console.log").read_text)
            health("console", _8081=address)
        finally:
            process.terminate()
            assert process.wait(60) == 0


def _healthy(address: str) -> bool:
    try:
        return bool(got(f"http://{address}/healthz"))
    except OSError:
        return False


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    """The volume after the service `certificates` has ended."""
    once("certificates", tmp_path)
    return tmp_path / "tls"


@pytest.mark.heavy
def test_certificates_are_kept_and_made_again_for_other_names(tls: Path, tmp_path: Path) -> None:
    assert {file.name for file in tls.iterdir() if mode(file) & 0o077} == {"ca.pem", "server.pem"}
    before = {name: (tls / name).read_text() for name in ("ca.pem", "server.pem", "password", "tokens.csv")}
    expires = expires_at(tls / "server.pem")
    assert expires is not None
    assert 360 < (expires - time.time()) / 86400 <= 365
    assert "made" not in once("certificates", tmp_path)
    assert {name: (tls / name).read_text() for name in before} == before
    once("certificates", tmp_path, {"gateway-tls,": "gateway-tls,events.example.org,192.0.2.7,2001:db8::7"})
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", tls / "server.pem"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in ("DNS:node-tls", "DNS:events.example.org", "IP Address:192.0.2.7", "IP Address:2001:DB8:0:0"):
        assert name in shown
    assert (tls / "ca.pem").read_text() == before["ca.pem"]
    assert (tls / "password").read_text() == before["password"]


@pytest.mark.heavy
def test_a_name_that_is_not_valid_is_named_and_changes_nothing(tls: Path, tmp_path: Path) -> None:
    before = (tls / "server.pem").read_bytes(), (tls / "server.key").read_bytes()
    words = once("certificates", tmp_path, {"gateway-tls,": "gateway-tls,192.0.2"}, status=1)
    assert "could not make certificates for 'node-tls,gateway-tls,192.0.2,localhost,127.0.0.1'" in words
    assert "bad ip address" in words
    assert ((tls / "server.pem").read_bytes(), (tls / "server.key").read_bytes()) == before
    assert "made" not in once("certificates", tmp_path)


@pytest.mark.heavy
def test_a_client_with_the_authority_and_the_password_uses_the_node(tls: Path, tmp_path: Path) -> None:
    places = {
        "0.0.0.0:5671": "127.0.0.1:0",
        "0.0.0.0:8672": "127.0.0.1:0",
        "/tls/": f"{tls}/",
        "/var/lib/amqp-streams": str(tmp_path / "node"),
    }
    trusting = TlsOptions(ca_file=tls / "ca.pem")
    with Service(tmp_path / "node", "node-tls", places) as node:
        url = f"amqps://localhost:{node.addresses['amqp'][0].rpartition(':')[2]}"
        password = (tls / "password").read_text().strip()
        with (
            connect(url, user="admin", password=password, tls=trusting) as client,
            client.producer("events") as producer,
        ):
            producer.send(Event(b"x"))
        with pytest.raises(AuthenticationError), connect(url, user="admin", password="x", tls=trusting):
            pass
        with pytest.raises(ConnectError, match="certificate"), connect(url, user="admin", password=password):
            pass
        assert "amqp_streams_certificate_expiry" in got(f"http://{node.addresses['admin'][0]}/metrics")
        assert node.stop() == 0, node.words


@pytest.mark.heavy
def test_a_sender_with_the_authority_and_the_token_uses_the_gateway(tls: Path, tmp_path: Path) -> None:
    places = {
        "0.0.0.0:8443": "127.0.0.1:0",
        "/tls/": f"{tls}/",
        "/var/lib/amqp-streams": str(tmp_path / "gateway"),
    }
    with GatewayService(tmp_path / "gateway", "gateway-tls", places) as gateway:
        trusting = ssl.create_default_context(cafile=tls / "ca.pem")
        token = (tls / "token").read_text().strip()
        assert _status(gateway, trusting, {}) == 401
        assert _status(gateway, trusting, {"authorization": f"Bearer {token}"}) == 200
        health_with(gateway, tls)
        assert gateway.stop() == 0, gateway.words


def health_with(gateway: GatewayProcess, tls: Path) -> None:
    code = SERVICES["gateway-tls"]["healthcheck"]["test"][-1]
    code = code.replace("8443", gateway.http.rpartition(":")[2])
    environment = {**os.environ, "SSL_CERT_FILE": str(tls / "ca.pem")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def _status(gateway: GatewayProcess, context: ssl.SSLContext, headers: dict[str, str]) -> int:
    port = int(gateway.http.rpartition(":")[2])
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    try:
        connection.request("GET", "/apis/eventing.knative.dev/v1/brokers", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.heavy
def test_the_job_counts_the_events_of_a_log(tmp_path: Path) -> None:
    java.provide()
    with NodeProcess(tmp_path / "node", log="events:2") as node:
        with connect(node.url) as client, client.producer("events", partition=1) as producer:
            for _ in range(5):
                producer.send(Event(b"x"))
        script, _, log = SERVICES["job"]["command"]
        line = [sys.executable, ROOT / "deploy" / "spark" / Path(script).name, node.url, log]
        # Spark starts `python3` for its workers: in the image, too, it is that of the environment.
        environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        done = subprocess.run(
            line, env=environment, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "|        1|     5|    0|   4|" in done.stdout
