"""The gateway's configuration file and environment: settings, or a `ConfigError` that says what is wrong.
Settings that are accepted can be used: rules, destinations and Services are made of them.
"""

import tempfile
from pathlib import Path
from typing import Final

from fuzz.configurations import configuration
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from knative_gateway.addressing import ServiceMap
from knative_gateway.cli.settings import gateway_settings, settable, variable_of
from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError
from knative_gateway.part_settings import destinations, ingress_limits, send_settings

_FOLDER: Final = tempfile.TemporaryDirectory(prefix="fuzz-configuration-")
_VALUES: Final = (
    "0", "1", "-1", "5", "0.5", "1e400", "nan", "1MiB", "true", "127.0.0.1:0", "[::1]:1", "x", "", "\x00",
    "9" * 30, "http://h", "a,b c", "/x", "*",
)  # fmt: skip
_NAMES: Final = tuple(settable())
WORDS: Final = (
    *sorted(GatewaySettings.model_fields), "[limits]", "[tls]", "[services]", "[destinations]",
    "[subscribers]", "[[rules]]", "[jwt]", "[logs]", "'a.b' = 'http://x'", "allow = ['10.0.0.0/8', '*.x']",
    "deny = ['x y']", "groups = ['g']", "users = ['u']", "allow = ['read', 'send']", "namespaces = ['n-*']",
    "public_url = 'http://x'", "listen = ['127.0.0.1:0']", "= ", "\n", "''", "[", "]", "{}", "[]", "1e999",
    "nan", "1979-05-27T07:32:00Z", "timeout = 20", "state_dir = 's'",
)  # fmt: skip


def run(data: bytes) -> str:
    """A file as it is, or settings from the environment and a file of words."""
    draw = Draw(data)
    environment, written = configuration(draw, _NAMES, variable_of, _VALUES, WORDS)
    path = Path(_FOLDER.name) / "gateway.toml"
    path.write_bytes(written)
    try:
        settings = gateway_settings({}, environment, path)
        ServiceMap.parse(settings.services)
        destinations(settings)
        ingress_limits(settings)
        send_settings(settings)
    except ConfigError as error:
        if not str(error).strip():
            message = "a ConfigError without words"
            raise WrongError(message) from error
        return "".join(
            "#" if character.isdigit() else character for character in str(error).replace(str(path), "FILE")
        )[:50]
    settings.model_dump_json()
    return "settings"


TARGET: Final = Target(
    "configuration", run, seconds_max=0.5, words=tuple(word.encode() for word in WORDS), share=0.5
)
