"""A configuration file and an environment: settings, or a `ConfigError` that says what is wrong."""

import tempfile
from pathlib import Path
from typing import Final

from amqp_streams.cli.settings import node_settings, settable, variable_of
from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError
from fuzz.configurations import configuration
from fuzz.draw import Draw
from fuzz.target import Target, WrongError

_FOLDER: Final = tempfile.TemporaryDirectory(prefix="fuzz-settings-")
_VALUES: Final = (
    "0",
    "1",
    "-1",
    "5s",
    "1 day",
    "1GiB",
    "true",
    "always",
    "interval:5",
    "interval:",
    "127.0.0.1:0",
    "[::1]:1",
    "x",
    "",
    "\x00",
    "9" * 30,
)
_NAMES: Final = tuple(settable())
WORDS: Final = (
    *sorted(NodeSettings.model_fields),
    *(
        "[limits]",
        "[groups]",
        "[logs.events]",
        "[[access]]",
        "[[redirect]]",
        "[quotas.a]",
        "[user_groups]",
        "partitions = 4",
        "data_dir = 'x'",
    ),
    *(
        "listen = ['127.0.0.1:0']",
        "= ",
        "\n",
        "''",
        "[",
        "]",
        "{}",
        "[]",
        "1e999",
        "nan",
        "1979-05-27T07:32:00Z",
    ),
)


def run(data: bytes) -> str:
    """The first byte chooses: a file as it is, or settings from the environment and a file of words."""
    draw = Draw(data)
    environment, written = configuration(draw, _NAMES, variable_of, _VALUES, WORDS)
    path = Path(_FOLDER.name) / "node.toml"
    path.write_bytes(written)
    try:
        node_settings({}, environment, path)
    except ConfigError as error:
        if not str(error).strip():
            message = "a ConfigError without words"
            raise WrongError(message) from error
        return "".join(
            "#" if character.isdigit() else character for character in str(error).replace(str(path), "FILE")
        )[:50]
    return "settings"


TARGET: Final = Target(
    "settings", run, seconds_max=0.5, words=tuple(word.encode() for word in WORDS), share=0.5
)
