"""The file of contexts belongs to its user, and keeps what other programs wrote."""

import json
from pathlib import Path

import pytest

from service_parts.command_line.contexts.settings import Kind
from service_parts.command_line.contexts.stored import Contexts, load, path_of, save
from service_parts.errors import SettingError

ONE, OTHER = Kind("one", "ONE_", "url", ()), Kind("other", "OTHER_", "url", ())


def test_the_path_is_of_a_variable_or_below_the_folder_for_configuration() -> None:
    assert path_of({"AMQP_STREAMS_CONTEXTS": "/x.json", "XDG_CONFIG_HOME": "/c"}) == Path("/x.json")
    assert path_of({"XDG_CONFIG_HOME": "/c"}) == Path("/c/amqp-event-streams/contexts.json")
    assert path_of({}) == Path("~/.config/amqp-event-streams/contexts.json").expanduser()


def test_each_program_has_its_own_contexts_in_one_private_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "contexts.json"
    assert load(ONE, path) == Contexts(path)
    save(ONE, Contexts(path, {"prod": {"url": "u", "insecure": True}}, "prod"))
    save(OTHER, Contexts(path, {"prod": {"url": "v"}}))
    assert load(ONE, path) == Contexts(path, {"prod": {"url": "u", "insecure": True}}, "prod")
    assert load(OTHER, path) == Contexts(path, {"prod": {"url": "v"}})
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [each.name for each in path.parent.iterdir()] == ["contexts.json"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "contexts.json"
    save(ONE, Contexts(path, {"prod": {"url": "u"}}))
    path.chmod(mode)
    with pytest.raises(SettingError, match="run chmod 600"):
        load(ONE, path)
    path.chmod(0o644)
    assert "prod" in load(ONE, path).named


@pytest.mark.parametrize("text", ["", "[]", "{", '{"contexts": {"one": {"a": 1}}}'])
def test_a_file_that_is_not_valid_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "contexts.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SettingError, match=r"contexts\.json is not a valid file of contexts"):
        load(ONE, path)


def test_a_file_that_cannot_be_read_or_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: Is a directory"):
        load(ONE, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="cannot be"):
        save(ONE, Contexts(tmp_path / "file" / "contexts.json"))


def test_a_current_context_that_does_not_exist_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "contexts.json"
    path.write_text(json.dumps({"contexts": {}, "current": {"one": "gone"}}))
    path.chmod(0o600)
    assert load(ONE, path).current is None


def test_the_nearest_name_is_suggested() -> None:
    contexts = Contexts(Path("c.json"), {"prod": {}, "test": {}})
    with pytest.raises(SettingError, match=r"no context named 'prodd' in c\.json; did you mean 'prod'\?"):
        contexts.get("prodd")
    with pytest.raises(SettingError, match="the contexts are prod, test"):
        contexts.get("zzz")
    with pytest.raises(SettingError, match="no context exists"):
        Contexts(Path("c.json")).get("zzz")
