"""One name for each setting, and the order of flags, variables, file and defaults."""

from pathlib import Path

import pytest

from knative_gateway.cli.settings import gateway_settings, settable, variable_of
from knative_gateway.errors import ConfigError
from service_parts.settings.sources import flag_of


def test_a_flag_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "g.toml"
    file.write_text(
        'listen = "127.0.0.1:1"\npublic_url = "http://file"\nlog_format = "json"\n[limits]\nbody ='
        ' "2MiB"\nidle = 5\n'
    )
    environment = {
        "KNATIVE_GATEWAY_LISTEN": "127.0.0.1:2,[::1]:3",
        "KNATIVE_GATEWAY_PUBLIC_URL": "http://variable",
        "OTHER": "x",
    }
    settings = gateway_settings(
        {("public_url",): "http://flag", ("listen",): (), ("amqp",): None}, environment, file
    )
    assert [str(one) for one in settings.listen] == ["127.0.0.1:2", "[::1]:3"]
    assert (settings.public_url, settings.log_format, settings.limits.body, settings.limits.idle) == (
        "http://flag",
        "json",
        2 << 20,
        5,
    )


def test_paths_in_the_file_start_at_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "g.toml"
    file.write_text('state_dir = "state"\n[tls]\ncertificate = "c.pem"\nkey = "/k.pem"\n')
    settings = gateway_settings({}, {}, file)
    assert settings.tls is not None
    assert (settings.state_dir, settings.tls.certificate, settings.tls.key) == (
        tmp_path / "state",
        tmp_path / "c.pem",
        Path("/k.pem"),
    )


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("listen = 5", "listen"),
        ('listen = ["x"]', "listen.0 .*g.toml.*: 'x' is not a valid address"),
        ("[limits]\nbody = 5", "limits.body .*g.toml"),
        ("[limits]\nbodies = 5", "limits.bodies .*unknown setting; the settings are append"),
        ("[other]\nx = 5", "other .*unknown setting; the settings are amqp"),
        ('amqp = "amqp://a"\namqp_listen = "a:1"', "amqp and amqp_listen"),
        ("x = ", "is not valid TOML"),
    ],
)
def test_invalid_settings_are_refused_with_name_and_source(file: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "g.toml"
    path.write_text(file)
    with pytest.raises(ConfigError, match=words):
        gateway_settings({}, {}, path)


def test_an_invalid_entry_of_a_list_is_one_fault() -> None:
    with pytest.raises(ConfigError) as refused:
        gateway_settings({("listen",): ["x"]}, {}, None)
    assert len(str(refused.value).splitlines()) == 1


def test_a_variable_that_names_no_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="KNATIVE_GATEWAY_BODY in the environment is not a setting"):
        gateway_settings({}, {"KNATIVE_GATEWAY_BODY": "1"}, None)
    with pytest.raises(ConfigError, match=r"limits.body \(KNATIVE_GATEWAY_LIMITS_BODY\)"):
        gateway_settings({}, {"KNATIVE_GATEWAY_LIMITS_BODY": "x"}, None)


def test_a_value_in_the_place_of_a_table_is_refused_with_both_sources(tmp_path: Path) -> None:
    path = tmp_path / "g.toml"
    path.write_text("tls = 5")
    words = r"tls is a value \(.*g\.toml\) and a table \(KNATIVE_GATEWAY_TLS_KEY\)"
    with pytest.raises(ConfigError, match=words):
        gateway_settings({}, {"KNATIVE_GATEWAY_TLS_KEY": "k"}, path)


def test_a_file_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        gateway_settings({}, {}, tmp_path / "none.toml")


def test_names_are_one() -> None:
    assert ("tls", "certificate") in settable()
    assert ("listen",) in settable()
    assert flag_of(("tls", "certificate")) == "--tls-certificate"
    assert variable_of(("limits", "batch_events")) == "KNATIVE_GATEWAY_LIMITS_BATCH_EVENTS"


def test_every_setting_and_its_variable_is_in_the_reference() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "gateway-configuration.md").read_text(
        encoding="utf-8"
    )
    assert [name for name in settable() if f"`{variable_of(name)}`" not in text] == []
