"""Objects from a directory when the gateway starts."""

from pathlib import Path

import pytest

from knative_gateway.api import Api, load_directory
from knative_gateway.errors import ConfigError
from knative_gateway.resources.documents.manifests import written_yaml
from tests.knative_gateway.api.client import MERGE, TRIGGERS, call, config_map, definition, trigger


async def test_all_files_are_applied_definitions_first(api: Api, tmp_path: Path) -> None:
    service = {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "apps"},
    }
    (tmp_path / "a.yaml").write_text("\n---\n".join(map(written_yaml, [service, trigger()])))
    (tmp_path / "b.yml").write_text(
        written_yaml({"apiVersion": "v1", "kind": "List", "items": [config_map(), definition()]})
    )
    (tmp_path / "c.txt").write_text("not: read")
    assert await load_directory(api, tmp_path) == 4
    assert (await call(api, "GET", "/apis/serving.knative.dev/v1/namespaces/apps/services/s")).code == 200
    await call(
        api,
        "PATCH",
        f"{TRIGGERS}/t",
        {"spec": {"subscriber": {"uri": "http://other/"}, "delivery": {"retry": 1}}},
        headers=MERGE,
    )
    assert await load_directory(api, tmp_path) == 4
    spec = (await call(api, "GET", f"{TRIGGERS}/t")).json["spec"]
    assert (spec["subscriber"], spec["delivery"]) == ({"uri": "http://127.0.0.1/"}, {"retry": 1})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "it is not YAML"),
        ("a: b", "apiVersion and kind are missing"),
        (
            "apiVersion: v7\nkind: Nothing\nmetadata: {name: x}",
            "Nothing x: the gateway does not serve this kind of v7",
        ),
        (
            "apiVersion: eventing.knative.dev/v1\nkind: Trigger\nmetadata: {name: x}\nspec: {broker: 1}",
            "Trigger x: .*spec.broker",
        ),
    ],
)
async def test_an_object_that_cannot_be_applied_is_reported_with_its_file(
    api: Api, tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "broken.yaml").write_text(content)
    with pytest.raises(ConfigError, match=f"broken.yaml: {words}"):
        await load_directory(api, tmp_path)


async def test_a_directory_that_does_not_exist_is_reported(api: Api, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: No such file"):
        await load_directory(api, tmp_path / "nowhere")
