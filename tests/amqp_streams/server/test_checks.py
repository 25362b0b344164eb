"""The files that settings name are read before a node starts with them."""

from pathlib import Path

import pytest

from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.checks import check_files
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
