"""The files and values that settings name are checked as a starting gateway checks them."""

from pathlib import Path

import pytest

from knative_gateway.checks import check_settings
from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError

BROKER = "apiVersion: eventing.knative.dev/v1\nkind: Broker\nmetadata: {name: default}\n"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: one}
"""


def settings(folder: Path, **given: object) -> GatewaySettings:
    return GatewaySettings.model_validate({"state_dir": folder / "state"} | given)


def test_settings_and_files_that_work_are_good_and_nothing_is_kept(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("a-token-of-enough-letters,alice,1\n")
    tokens.chmod(0o600)
    resources = tmp_path / "resources"
    resources.mkdir()
    (resources / "all.yaml").write_text(f"{BROKER}---{DEFINITION}")
    check_settings(
        settings(tmp_path, tokens=tokens, resources=resources, store="postgresql://nobody@127.0.0.1:1/none")
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resources", "tokens.csv"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"services": {"hello": "http://h"}}, "'hello'"),
        ({"destinations": {"allow": ["10.0.0.0/99"]}}, "10.0.0.0/99"),
        ({"tokens": "none.csv"}, "none.csv"),
        ({"tls": {"certificate": "none.pem", "key": "none.pem"}}, "TLS certificate none.pem"),
        ({"subscribers": {"ca": "none.pem"}}, "subscribers: ca"),
        ({"jwt": {"issuer": "https://i", "audience": "a", "keys": "none.json"}}, "none.json"),
        ({"store": "mysql://h/d"}, "mysql"),
        ({"resources": "none"}, "resources: none"),
        ({"console": {"listen": "127.0.0.1:0", "ca": "none.pem"}}, "console.ca: cannot read none.pem"),
    ],
)
def test_unusable_objects_are_named(given: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        check_settings(settings(tmp_path, **given))
