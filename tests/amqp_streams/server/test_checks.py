"""The files that settings name are read before a node starts with them."""

import socket
from pathlib import Path

import pytest

from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError, StorageError
from amqp_streams.server.checks import check_files, check_start
from amqp_streams.storage.catalog import seal
from examples.node import NodeProcess
from tests.amqp_streams.server.issuer import KeyFolder, jwk
from tests.amqp_streams.server.peers import Authority


def test_files_that_work_are_good(tmp_path: Path, authority: Authority) -> None:
    keys = KeyFolder(tmp_path).jwks(jwk("ES256"))
    given = {
        "data_dir": tmp_path,
        "tls": authority.issue("node"),
        "users": tmp_path / "users.json",
        "oauth": keys.oauth(),
    }
    check_files(NodeSettings.model_validate(given))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls": {"certificate": "none.pem", "key": "none.pem"}}, "none.pem: No such file"),
        ({"users": "/"}, "cannot read"),
        (
            {"oauth": {"issuer": "https://i", "audience": ["a"], "keys": ["none.json"]}},
            "cannot read none.json",
        ),
    ],
)
def test_a_file_that_does_not_work_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_files(NodeSettings.model_validate({"data_dir": "d"} | settings))


def on_kafka(**node: object) -> NodeSettings:
    return NodeSettings.model_validate(
        {
            "store": "kafka",
            "kafka": {"servers": "127.0.0.1:1"},
            "listen": ["127.0.0.1:0"],
            "node": {"listen": "127.0.0.1:0", **node},
        }
    )


def test_the_secret_of_the_nodes_is_read_and_their_address_is_tried(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    with pytest.raises(ConfigError, match=r"node\.secret_file: .* must have one line with the secret"):
        check_start(on_kafka(secret_file=file))
    file.write_text("s" * 32)
    assert check_start(on_kafka(secret_file=file)) == []
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = "{}:{}".format(*used.getsockname())
        (remark,) = check_start(on_kafka(secret_file=file, listen=address))
    assert remark.startswith(f"{address} is in use")


def test_the_certificates_of_the_nodes_are_read(authority: Authority) -> None:
    files = authority.issue("peer")
    given = {"certificate": files.certificate, "key": files.key, "ca": authority.ca}
    check_files(on_kafka(**given))
    with pytest.raises(ConfigError, match=r"node\.ca"):
        check_files(on_kafka(**given | {"ca": files.key}))


def test_a_certificate_that_other_nodes_would_refuse_is_named(authority: Authority, tmp_path: Path) -> None:
    files, others = authority.issue("peer"), Authority(tmp_path / "others")
    own = {"certificate": files.certificate, "key": files.key, "ca": authority.ca}
    assert check_start(on_kafka(**own)) == []
    named = authority.issue("named", names="DNS:nodes.example")
    common = {**own, "certificate": named.certificate, "key": named.key}
    assert check_start(on_kafka(**common, certificate_name="nodes.example")) == []
    for given in ({**own, "ca": others.ca}, common, {**own, "certificate_name": "nodes.example"}):
        with pytest.raises(ConfigError, match=r"node\.certificate: other nodes would refuse .*\.pem: \w+"):
            check_start(on_kafka(**given))


def test_an_advertised_host_that_is_not_found_is_a_remark(authority: Authority) -> None:
    """Other machines may find it."""
    files = authority.issue("named", names="DNS:nowhere.invalid")
    tls = {"certificate": files.certificate, "key": files.key, "ca": authority.ca}
    (remark,) = check_start(on_kafka(**tls, advertise="nowhere.invalid:5680"))
    assert remark.startswith("node.advertise: this machine does not find nowhere.invalid: ")


def test_what_a_running_node_uses_is_a_remark(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--console-listen", "127.0.0.1:0") as node:
        address = node.addresses["amqp"][0]
        given = {
            "data_dir": node.data_dir,
            "listen": [address],
            "console": {"listen": node.addresses["console"][0]},
        }
        used, console, folder = check_start(NodeSettings.model_validate(given))
        assert used == f"{address} is in use by another process, perhaps by the node that runs now"
        assert console.startswith(node.addresses["console"][0])
        assert folder == f"{node.data_dir} is in use by process {node.pid}"
        node.stop()  # nothing that it leaves is in the way
        assert check_start(NodeSettings.model_validate(given)) == []


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    given = {"data_dir": tmp_path / "new" / "data", "listen": ["127.0.0.1:0"]}
    assert check_start(NodeSettings.model_validate(given)) == []
    assert not any(tmp_path.iterdir())


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given = {"data_dir": tmp_path / "file" / "data", "listen": ["127.0.0.1:0"]}
    with pytest.raises(ConfigError, match=r"data_dir: .*/file is not a directory"):
        check_start(NodeSettings.model_validate(given))


def test_a_data_directory_of_a_newer_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_bytes(seal({"format": 99, "id": "00"}))
    with pytest.raises(StorageError, match="has format 99, but this version reads"):
        check_start(NodeSettings.model_validate({"data_dir": tmp_path, "listen": ["127.0.0.1:0"]}))


def test_an_address_of_another_machine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192.0.2.1:0"):
        check_start(NodeSettings.model_validate({"data_dir": tmp_path, "listen": ["192.0.2.1:0"]}))
