"""A setting comes from its flag, else from its variable, else from the file, else from the default. Errors
name the setting and its source.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from amqp_streams.authentication import TlsSettings
from amqp_streams.cli.settings import node_settings, settable, variable_of
from amqp_streams.config import (
    GroupSettings,
    Limits,
    Listener,
    LogSettings,
    NodeSettings,
    Sync,
    SyncMode,
)
from amqp_streams.errors import ConfigError
from service_parts.settings.choices import AnonymousAccess
from service_parts.settings.sources import Name, flag_of

DIRECTORY: dict[Name, object] = {("data_dir",): "data"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a bit of everything."""
    path = tmp_path / "node.toml"
    path.write_text("""
        data_dir = "events"
        listen = ["127.0.0.1:5673", "[::1]:5673"]
        listen_tls = ["0.0.0.0:5671"]
        admin_listen = "127.0.0.1:8672"
        sync = "interval:50"
        anonymous = "never"
        users = "/etc/amqp-streams/users.json"
        auto_create = 2
        [tls]
        certificate = "c.pem"
        key = "/k.pem"
        [limits]
        message_bytes = "1MiB"
        idle_timeout = "2m"
        [logs.temps]
        partitions = 4
        retention = "7d"
        [logs."a.b"]
        """)
    return path


def refused(
    flags: Mapping[Name, object], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> str:
    """The errors of settings that are not valid."""
    with pytest.raises(ConfigError) as caught:
        node_settings({**DIRECTORY, **flags}, environment or {}, file)
    return str(caught.value)


def test_without_anything_but_a_directory_the_defaults_count() -> None:
    assert node_settings(DIRECTORY, {}, None) == NodeSettings(data_dir=Path("data"))


def test_a_file_sets_everything_and_its_paths_start_at_its_folder(file: Path, tmp_path: Path) -> None:
    settings = node_settings({}, {}, file)
    assert settings.data_dir == tmp_path / "events"
    assert settings.listen == (
        Listener(host="127.0.0.1", port=5673),
        Listener(host="::1", port=5673),
        Listener(host="0.0.0.0", port=5671, tls=True),
    )
    assert settings.admin_listen == Listener(host="127.0.0.1", port=8672)
    assert settings.sync == Sync(mode=SyncMode.INTERVAL, interval_ms=50)
    assert settings.anonymous is AnonymousAccess.NEVER
    assert settings.users_file == Path("/etc/amqp-streams/users.json")
    assert settings.auto_create_partitions == 2
    assert settings.tls == TlsSettings(certificate=tmp_path / "c.pem", key=Path("/k.pem"))
    assert settings.limits == Limits(message_bytes=1 << 20, idle_timeout_ms=120_000)
    assert settings.logs == {
        "temps": LogSettings(partitions=4, retention_ms=604_800_000),
        "a.b": LogSettings(),
    }


def test_a_variable_wins_over_the_file_and_a_flag_over_both(file: Path) -> None:
    environment = {
        "AMQP_STREAMS_SYNC": "never",
        "AMQP_STREAMS_ANONYMOUS": "always",
        "AMQP_STREAMS_LIMITS_IDLE_TIMEOUT": "5s",
    }
    settings = node_settings({("sync",): "always"}, environment, file)
    assert settings.sync.mode is SyncMode.ALWAYS
    assert settings.anonymous is AnonymousAccess.ALWAYS
    assert settings.limits == Limits(message_bytes=1 << 20, idle_timeout_ms=5000)


def test_the_longer_name_of_a_setting_is_the_same_setting(tmp_path: Path) -> None:
    """`idle_timeout_ms` in the file and `idle_timeout` in the environment are the same setting."""
    path = tmp_path / "node.toml"
    path.write_text("[limits]\nidle_timeout_ms = 9000\ndrain_ms = 7")
    settings = node_settings(DIRECTORY, {"AMQP_STREAMS_LIMITS_IDLE_TIMEOUT": "5s"}, path)
    assert (settings.limits.idle_timeout_ms, settings.limits.drain_ms) == (5000, 7)


def test_every_setting_has_a_variable() -> None:
    assert {variable_of(name) for name in settable()} >= {
        "AMQP_STREAMS_DATA_DIR",
        "AMQP_STREAMS_LISTEN",
        "AMQP_STREAMS_LISTEN_TLS",
        "AMQP_STREAMS_LOG",
        "AMQP_STREAMS_TLS_CLIENT_CA",
        "AMQP_STREAMS_LIMITS_MESSAGE_BYTES",
        "AMQP_STREAMS_LIMITS_DRAIN",
        "AMQP_STREAMS_USERS",
        "AMQP_STREAMS_AUTO_CREATE",
        "AMQP_STREAMS_PLAIN_WITHOUT_TLS",
    }


def test_lists_in_variables_are_separated_by_spaces_or_commas() -> None:
    environment = {"AMQP_STREAMS_LISTEN": "127.0.0.1:1, [::1]:2", "AMQP_STREAMS_LOG": "temps:4 events"}
    settings = node_settings(DIRECTORY, environment, None)
    assert [str(listener) for listener in settings.listen] == ["127.0.0.1:1", "[::1]:2"]
    assert settings.logs == {"temps": LogSettings(partitions=4), "events": LogSettings(partitions=1)}


def test_a_log_given_as_a_flag_keeps_the_file_s_settings_except_the_partitions(file: Path) -> None:
    settings = node_settings({("log",): ("temps:8", "more:2")}, {}, file)
    assert settings.logs["temps"] == LogSettings(partitions=8, retention_ms=604_800_000)
    assert settings.logs["more"] == LogSettings(partitions=2)


def test_listening_only_with_tls_leaves_the_plain_default_out() -> None:
    flags: dict[Name, object] = {
        ("listen_tls",): ("127.0.0.1:5671",),
        ("tls", "certificate"): "c",
        ("tls", "key"): "k",
    }
    assert node_settings(DIRECTORY | flags, {}, None).listen == (
        Listener(host="127.0.0.1", port=5671, tls=True),
    )


def test_a_truth_is_written_in_the_environment_as_people_do() -> None:
    assert (
        node_settings(DIRECTORY, {"AMQP_STREAMS_PLAIN_WITHOUT_TLS": "true"}, None).plain_without_tls is True
    )


def test_a_missing_directory_is_named_in_all_the_places_where_it_could_be_given() -> None:
    with pytest.raises(ConfigError, match=r"--data-dir DIR, AMQP_STREAMS_DATA_DIR, or data_dir in the file"):
        node_settings({}, {}, None)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        (("listen",), ("nowhere",), "HOST:PORT"),
        (("admin_listen",), "nowhere", "HOST:PORT"),
        (("sync",), "sometimes", "'always', 'never', or 'interval:MS'"),
        (("anonymous",), "perhaps", "'loopback', 'always' or 'never'"),
        (("auto_create",), "5000", "must be at most 1024"),
        (("log_format",), "xml", "'text' or 'json'"),
        (("log_level",), "loud", "'debug', 'info', 'warning' or 'error'"),
        (("log",), ("temps:many",), "NAME:PARTITIONS"),
        (("log",), ("a/b:1",), "letters, digits"),
        (("log",), ("temps:0",), "must be at least 1"),
    ],
)
def test_a_wrong_flag_is_named_with_what_is_allowed(name: Name, value: object, allowed: str) -> None:
    said = refused({name: value})
    assert flag_of(name) in said
    assert allowed in said


def test_a_wrong_variable_is_named() -> None:
    said = refused({}, {"AMQP_STREAMS_LIMITS_FRAME_BYTES": "3"})
    assert said == "limits.frame_bytes (AMQP_STREAMS_LIMITS_FRAME_BYTES): must be at least 512 (got 3)"


def test_a_variable_of_a_section_that_is_not_a_setting_is_refused_with_the_known_ones() -> None:
    said = refused({}, {"AMQP_STREAMS_LIMITS_FRAMES": "3"})
    assert "AMQP_STREAMS_LIMITS_FRAMES" in said
    assert "AMQP_STREAMS_LIMITS_FRAME_BYTES" in said


def test_variables_of_the_clients_do_not_concern_the_node() -> None:
    node_settings(DIRECTORY, {"AMQP_STREAMS_URL": "amqp://elsewhere", "AMQP_STREAMS_PASSWORD": "x"}, None)


def test_every_wrong_setting_of_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'lissten = "a"\n[limits]\nframe_bytes = "many"\nidle_timeout = true\n[logs.temps]\nretentoin = "7d"\n'
    )
    said = refused({}, {}, path).splitlines()
    assert len(said) == 4
    assert all(str(path) in line for line in said)
    assert any(
        line.startswith("lissten ") and "did you mean listen? (there are access, admin_listen," in line
        for line in said
    )
    assert any(
        line.startswith("limits.frame_bytes ") and "'many' is not a valid size" in line for line in said
    )
    assert any(line.startswith("limits.idle_timeout ") and "is not a valid duration" in line for line in said)
    assert any(
        line.startswith("logs.temps.retentoin ") and "partitions, retention, retention_bytes" in line
        for line in said
    )


def test_a_misspelt_setting_is_named_although_the_required_one_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('data_dri = "d"\n')
    with pytest.raises(ConfigError) as raised:
        node_settings({}, {}, path)
    misspelt, missing = str(raised.value).splitlines()
    assert f"data_dri ({path}): no such setting; did you mean data_dir?" in misspelt
    assert missing.startswith("data_dir is not set: give --data-dir DIR")
    path.write_text("")
    with pytest.raises(ConfigError, match=r"^data_dir is not set"):
        node_settings({}, {}, path)


def test_rules_quotas_and_redirects_are_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("""data_dir = "d"
[user_groups]
ops = ["alice", "bob"]
[[access]]
users = ["group:ops"]
logs = ["*"]
allow = ["manage"]
[[access]]
users = ["*"]
logs = ["temps"]
allow = ["receive"]
[quotas."*"]
bytes_in = "10MiB"
[[redirect]]
log = "temps"
partitions = [1]
host = "b.example"
port = 5672
""")
    settings = node_settings({}, {}, path)
    assert settings.user_groups == {"ops": ("alice", "bob")}
    assert [rule.users for rule in settings.access] == [("group:ops",), ("*",)]
    assert settings.quotas["*"].bytes_in == 10 << 20
    assert [redirect.host for redirect in settings.redirects] == ["b.example"]


def test_a_wrong_rule_is_named_by_its_place_among_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'data_dir = "d"\n[[access]]\nusers = ["ali*"]\nlogs = ["temps"]\nallow = ["sendd"]\nuser ='
        ' 5\n[quotas.bob]\nconnection = 5\n[[redirect]]\nlog = "temps"\nhost = "b.example"\n'
    )
    said = refused({}, {}, path).splitlines()
    assert all(str(path) in line for line in said)
    starts = {
        "access.0.users.0": "patterns of users are not supported",
        "access.0.allow.0": "'send'",
        "access.0.user ": "there are allow, consumer_groups",
    }
    starts |= {"quotas.bob.connection ": "there are bytes_in", "redirect.0.port": "is required"}
    assert len(said) == len(starts)
    for start, words in starts.items():
        assert any(line.startswith(start) and words in line for line in said), start


def test_half_of_a_certificate_is_not_enough() -> None:
    assert "--tls-key, AMQP_STREAMS_TLS_KEY" in refused({("tls", "certificate"): "c.pem"})


def test_a_listener_with_tls_needs_a_certificate() -> None:
    assert "--tls-certificate" in refused({("listen_tls",): ("127.0.0.1:5671",)})


def test_a_table_where_a_value_belongs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("limits = 5\n[sync]\nmode = 'often'\n")
    said = refused({}, {}, path)
    assert f"limits ({path}): must be a table" in said
    assert f"sync.mode ({path}): must be 'always', 'interval' or 'never'" in said


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot read"), (b"a = ", "not valid TOML"), (b"\xff", "not valid TOML")],
)
def test_an_unusable_file_is_reported(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    path = tmp_path / "node.toml"
    if content is not None:
        path.write_bytes(content)
    said = refused({}, {}, path)
    assert complaint in said
    assert str(path) in said


def test_the_same_name_as_value_and_table_is_refused_with_both_places(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("limits = 5\n")
    said = refused({}, {"AMQP_STREAMS_LIMITS_CREDIT": "5"}, path)
    assert (
        said
        == f"limits is a value ({path}) and a table (AMQP_STREAMS_LIMITS_CREDIT): only one of them can be"
    )


def test_groups_come_from_the_file_and_from_variables(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('data_dir = "d"\n[groups]\nonly = ["billing"]\npause = "1s"\n')
    assert node_settings({}, {}, path).groups == GroupSettings(only=("billing",), pause_ms=1000)
    environment = {"AMQP_STREAMS_GROUPS_ONLY": "billing, audit-*", "AMQP_STREAMS_GROUPS_WAIT": "0"}
    assert node_settings({}, environment, path).groups == GroupSettings(
        only=("billing", "audit-*"), pause_ms=1000, wait_ms=0
    )


def test_keys_and_rules_for_other_logins_come_from_the_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'data_dir = "d"\n[tls]\ncertificate = "c"\nkey = "k"\nclient_ca = "ca"\nclient_certificates ='
        ' "optional"\n[[external]]\nname = "cn"\npattern = "(.+)"\nuser = "{1}"\n[oauth]\nissuer ='
        ' "i"\naudience = ["a", "b"]\nkeys = ["one.json", "/two.pem"]\nleeway = "1m"\n'
    )
    settings = node_settings({}, {"AMQP_STREAMS_OAUTH_ALGORITHMS": "RS256,ES256"}, path)
    assert settings.external[0].user_of("x") == "x"
    assert settings.oauth is not None
    assert settings.oauth.keys == (tmp_path / "one.json", Path("/two.pem"))
    assert [str(algorithm) for algorithm in settings.oauth.algorithms] == ["RS256", "ES256"]
    assert settings.tls is not None
    assert settings.tls.client_certificates == "optional"
    with pytest.raises(ConfigError, match="AMQP_STREAMS_OAUTH_ALGORITHMS"):
        node_settings({}, {"AMQP_STREAMS_OAUTH_ALGORITHMS": "none"}, path)


def test_every_setting_and_its_variable_is_in_the_reference() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "node-configuration.md").read_text(
        encoding="utf-8"
    )
    assert [name for name in settable() if f"`{variable_of(name)}`" not in text] == []


def test_every_dependency_is_accounted_for() -> None:
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    rows = (root / "docs" / "decisions" / "dependencies.md").read_text(encoding="utf-8").splitlines()
    for requirement in (one.partition(";")[0] for one in wanted if not one.startswith("amqp-event-streams[")):
        name = re.split(r"[<>=]", requirement, maxsplit=1)[0]
        assert any(row.startswith(f"| {name} | {requirement.removeprefix(name)} |") for row in rows), (
            requirement
        )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nests tables or lists too deeply"),
        ("[" + ".".join(["a"] * 5000) + "]\nb = 1", "nests tables or lists too deeply"),
        ("[limits]\ncredit = " + "9" * 5000, "is not valid TOML"),
    ],
    ids=["lists", "tables", "digits"],
)
def test_a_file_that_python_cannot_read_is_refused_in_words(
    tmp_path: Path, content: str, complaint: str
) -> None:
    """A reload with such a file must not apply some of its settings only."""

    file = tmp_path / "node.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        node_settings({("data_dir",): "d"}, {}, file)


def test_a_number_of_partitions_with_thousands_of_digits_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="is not NAME:PARTITIONS"):
        node_settings({("data_dir",): "d", ("log",): ("temps:" + "9" * 5000,)}, {}, None)


def test_trusted_proxies_are_addresses_and_networks() -> None:
    found = node_settings({("data_dir",): "d"}, {"AMQP_STREAMS_TRUSTED_PROXIES": "10.0.0.0/8 ::1"}, None)
    assert found.trusted_proxies == ("10.0.0.0/8", "::1")
    with pytest.raises(ConfigError, match=r"'lb\.example' is not a valid IP address or network"):
        node_settings({("data_dir",): "d", ("trusted_proxies",): ("lb.example",)}, {}, None)
