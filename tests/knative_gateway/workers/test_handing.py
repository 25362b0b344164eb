"""The contents of files that the parent hands over. Real workers: tests/acceptance/test_workers.py."""

import os
from pathlib import Path
from typing import Any

import pytest

from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError
from knative_gateway.workers.handing import FILE_BYTES_MAX, FILES, HandedFiles, packed, read_files


@pytest.fixture
def settings(tmp_path: Path) -> GatewaySettings:
    """Settings with each file, which contains the name of its setting."""
    for name in FILES:
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o640)
    return GatewaySettings.model_validate(
        {
            "tokens": tmp_path / "tokens",
            "jwt": {"issuer": "i", "audience": "a", "keys": tmp_path / "jwt.keys"},
            "tls": {"certificate": tmp_path / "tls.certificate", "key": tmp_path / "tls.key"},
            "subscribers": {
                "ca": tmp_path / "subscribers.ca",
                "certificate": tmp_path / "subscribers.certificate",
                "key": tmp_path / "subscribers.key",
            },
        }
    )


def paths(settings: GatewaySettings) -> dict[str, Path]:
    found = {}
    for name in FILES:
        value: Any = settings
        for part in name.split("."):
            value = getattr(value, part)
        found[name] = value
    return found


def test_every_setting_that_names_a_file_which_a_reload_reads_is_handed_over() -> None:
    """Also a setting that is new."""

    def of(model: Any, before: str) -> set[str]:
        found = set()
        for name, field in model.model_fields.items():
            kinds = {field.annotation, *getattr(field.annotation, "__args__", ())}
            if Path in kinds:
                found.add(before + name)
            for kind in kinds:
                if hasattr(kind, "model_fields"):
                    found |= of(kind, f"{before}{name}.")
        return found

    # The first is a directory that the workers share, the second is read once, by the first worker. The
    # console of the parent process reads the others.
    console = {"console.ca", "console.oidc_ca", "console.oidc_client_secret"}
    assert of(GatewaySettings, "") - {"state_dir", "resources"} - console == set(FILES)


def test_a_worker_reads_what_the_parent_read_whatever_happened_to_the_files(
    settings: GatewaySettings,
) -> None:
    message = packed(settings, read_files(settings))
    for path in paths(settings).values():
        path.unlink()
    with HandedFiles() as files:
        handed = paths(files.settings(message))
        assert {name: path.read_text() for name, path in handed.items()} == {name: name for name in FILES}
        assert handed["tokens"].stat().st_mode & 0o777 == 0o640
        words = f"{handed['tls.key']} and {handed['tokens']}"
        assert files.words(words) == f"{paths(settings)['tls.key']} and {paths(settings)['tokens']}"


def test_a_reload_replaces_the_contents_and_keeps_the_paths(settings: GatewaySettings) -> None:
    descriptors = _open_files()
    with HandedFiles() as files:
        before = paths(files.settings(packed(settings, read_files(settings))))
        paths(settings)["tokens"].write_text("new")
        after = paths(files.settings(packed(settings, read_files(settings))))
        assert before == after
        assert after["tokens"].read_text() == "new"
    assert _open_files() == descriptors


def test_a_file_that_only_the_group_may_read_can_be_read_again(settings: GatewaySettings) -> None:
    paths(settings)["tokens"].chmod(0o040)
    with HandedFiles() as files:
        copy = paths(files.settings(packed(settings, read_files(settings))))["tokens"]
        assert copy.stat().st_mode & 0o777 == 0o640


def test_settings_without_files_need_none() -> None:
    settings = GatewaySettings()
    with HandedFiles() as files:
        assert files.settings(packed(settings, read_files(settings))) == settings


def test_a_file_that_cannot_be_read_is_named_with_its_setting(settings: GatewaySettings) -> None:
    path = paths(settings)["subscribers.key"]
    path.unlink()
    with pytest.raises(ConfigError, match=f"subscribers.key: cannot read {path}: No such file"):
        read_files(settings)


def test_a_file_has_a_bound(settings: GatewaySettings) -> None:
    path = paths(settings)["subscribers.ca"]
    os.truncate(path, FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match=f"subscribers.ca: {path} is larger than {FILE_BYTES_MAX} bytes"):
        read_files(settings)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
