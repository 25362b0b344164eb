"""Objects with as many values as may be: a thread handles them, so that the event loop serves others.

Admission alone takes 300 to 600 ms for the largest object, and reading 16 KiB of YAML 20 ms.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from knative_gateway.api import Api, reading
from knative_gateway.api.handlers import WARNINGS_CHARACTERS_MAX
from knative_gateway.resources import admission
from knative_gateway.resources.documents import large
from knative_gateway.resources.documents.bounds import OBJECT_VALUES_MAX
from knative_gateway.resources.documents.large import INLINE_CHARACTERS
from knative_gateway.store import feed, resources
from knative_gateway.store.documents import read
from tests.knative_gateway.api.client import APPLY, JSON_PATCH, MERGE, call, config_map, watching

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DATA = {f"k{number}": "x" for number in range(OBJECT_VALUES_MAX // 2 - 100)}


class Threads:
    """In which threads functions were called, by their name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, set[str]] = {}
        self._monkeypatch = monkeypatch

    def note(self, owner: Any, name: str, *, characters_min: int = 0) -> None:
        """`characters_min`: of the first argument; shorter ones are not noted."""
        call_: Callable[..., Any] = getattr(owner, name)
        self.names[name] = set()

        def noted(*values: Any, **more: Any) -> Any:
            if len(values[0] if characters_min else "") >= characters_min:
                self.names[name].add(threading.current_thread().name)
            return call_(*values, **more)

        self._monkeypatch.setattr(owner, name, noted)

    def of(self, name: str) -> set[str]:
        """Those since the last call, without the numbers at the end of their names."""
        found = {each.partition("_")[0] for each in self.names[name]}
        self.names[name].clear()
        return found


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    made = Threads(monkeypatch)
    for name in ("create", "replace", "patch", "apply", "unchanged"):
        made.note(admission, name)
    for name in ("read_json", "read_yaml"):
        made.note(reading, name)
    return made


LOOP = {threading.main_thread().name}
THREAD = {"api"}


async def test_a_thread_admits_large_objects(api: Api, threads: Threads) -> None:
    assert (await call(api, "POST", CONFIG_MAPS, config_map(**DATA))).code == 201
    assert (threads.of("read_json"), threads.of("create")) == (THREAD, THREAD)
    path = f"{CONFIG_MAPS}/c"
    assert (await call(api, "PUT", path, config_map(**{**DATA, "k1": "y"}))).code == 200
    assert (threads.of("replace"), threads.of("unchanged")) == (THREAD, THREAD)
    assert threads.of("read_json") == THREAD
    # The body is small, and the object is not.
    assert (await call(api, "PATCH", path, {"data": {"k1": "z"}}, headers=MERGE)).code == 200
    assert (threads.of("read_json"), threads.of("patch")) == (LOOP, THREAD)
    taken = await call(api, "PATCH", path, config_map(k0="x"), query={"fieldManager": "m"}, headers=APPLY)
    assert (taken.code, threads.of("apply")) == (200, THREAD)


async def test_small_requests_need_no_thread(api: Api, threads: Threads) -> None:
    """A switch to a thread costs more than the work."""
    assert (await call(api, "POST", CONFIG_MAPS, config_map(a="x"))).code == 201
    assert (await call(api, "PUT", f"{CONFIG_MAPS}/c", config_map(a="y"))).code == 200
    assert (await call(api, "PATCH", f"{CONFIG_MAPS}/c", {"data": {"a": "z"}}, headers=MERGE)).code == 200
    assert {name: threads.of(name) for name in ("create", "replace", "patch", "unchanged")} == dict.fromkeys(
        ("create", "replace", "patch", "unchanged"), LOOP
    )


async def test_a_thread_applies_every_json_patch(api: Api, threads: Threads) -> None:
    """A few copies make a small object large."""
    await call(api, "POST", CONFIG_MAPS, config_map(a="x"))
    steps = [{"op": "replace", "path": "/data/a", "value": "y"}]
    changed = await call(api, "PATCH", f"{CONFIG_MAPS}/c", steps, headers=JSON_PATCH)
    assert (changed.json["data"], threads.of("patch")) == ({"a": "y"}, THREAD)


async def test_a_thread_reads_yaml(api: Api, threads: Threads) -> None:
    lines = "".join(f"  k{number}: x\n" for number in range(60))
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n{lines}".encode()
    made = await call(api, "POST", CONFIG_MAPS, body, headers={"content-type": "application/yaml"})
    assert (made.code, len(made.json["data"])) == (201, 60)
    assert threads.of("read_yaml") == THREAD


async def test_threads_decode_large_objects_for_requests_and_watches(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, watches = Threads(monkeypatch), Threads(monkeypatch)
    requests.note(resources, "read", characters_min=INLINE_CHARACTERS)
    watches.note(feed, "read", characters_min=INLINE_CHARACTERS)
    made = await call(api, "POST", CONFIG_MAPS, config_map(**DATA))
    assert (await call(api, "GET", f"{CONFIG_MAPS}/c")).json == made.json
    async with watching(api, CONFIG_MAPS) as events:
        assert (await anext(events))["object"] == made.json
        await call(api, "PATCH", f"{CONFIG_MAPS}/c", {"data": {"k1": "z"}}, headers=MERGE)
        assert (await anext(events))["object"]["data"]["k1"] == "z"
    for found in (requests.of("read"), watches.of("read")):
        assert found
        assert not LOOP & found


async def test_a_large_object_is_decoded_once_for_all_who_get_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await call(api, "POST", CONFIG_MAPS, config_map(**DATA))
    decoded: list[int] = []

    def counted(document: str) -> dict[str, object]:
        decoded.append(len(document))
        return read(document)

    monkeypatch.setattr(resources, "read", counted)
    answers = [await call(api, "GET", f"{CONFIG_MAPS}/c") for _ in range(3)]
    assert {answer.code for answer in answers} == {200}
    assert len(decoded) == 1
    await call(api, "PATCH", f"{CONFIG_MAPS}/c", {"data": {"k1": "z"}}, headers=MERGE)
    assert (await call(api, "GET", f"{CONFIG_MAPS}/c")).json["data"]["k1"] == "z"


async def test_no_call_of_the_encoder_handles_a_large_object(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = 0
    dumps, write = json.dumps, large._write

    def noted(document: object, **more: Any) -> str:
        nonlocal longest
        text = dumps(document, **more)
        longest = max(longest, len(text))
        return text

    def noted_piece(document: object) -> str:
        nonlocal longest
        text = write(document)
        longest = max(longest, len(text))
        return text

    body = json.dumps(config_map(**DATA)).encode()
    monkeypatch.setattr(json, "dumps", noted)
    monkeypatch.setattr(large, "_write", noted_piece)
    assert (await call(api, "POST", CONFIG_MAPS, body)).code == 201
    assert (await call(api, "GET", f"{CONFIG_MAPS}/c")).code == 200
    assert (await call(api, "GET", CONFIG_MAPS)).code == 200
    assert 0 < longest < 10_000


async def test_the_warnings_of_an_answer_have_a_size(api: Api) -> None:
    """An object may have 20,000 unknown fields."""
    unknown = {f"{'x' * 100}{number}": 1 for number in range(1000)}
    made = await call(api, "POST", CONFIG_MAPS, config_map() | unknown)
    assert made.code == 201
    assert 10 < len(made.warnings) < 100
    assert sum(map(len, made.warnings)) < 2 * WARNINGS_CHARACTERS_MAX
