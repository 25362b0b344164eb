"""What a context of a program contains. Pure.

Law: **a context has no secrets**, only the names of files and commands that have them.
"""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from service_parts.errors import SettingError

Value = str | bool
Settings = dict[str, Value]


class Form(StrEnum):
    """How a setting is written: a text, an absolute path, a command with its arguments, or true."""

    TEXT = "text"
    PATH = "path"
    COMMAND = "command"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a context. Its flag is `--NAME` of `context add`."""

    name: str
    metavar: str
    help: str
    form: Form = Form.TEXT

    @property
    def flag(self) -> str:
        """The flag of `context add`."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Kind:
    """The contexts of one program.

    `prefix`: of its environment variables. `address`: the setting with the URL, which every context has.
    """

    program: str
    prefix: str
    address: str
    settings: tuple[Setting, ...]

    @property
    def variable(self) -> str:
        """The variable that chooses a context."""
        return f"{self.prefix}CONTEXT"

    @property
    def address_variable(self) -> str:
        """The variable with the URL."""
        return f"{self.prefix}URL"

    def setting(self, name: str) -> Setting | None:
        """Return the setting with this name."""
        return next((one for one in self.settings if one.name == name), None)


def secret_settings(name: str) -> tuple[Setting, Setting]:
    """Return the two references to a secret, `password` or `token`."""
    return (
        Setting(f"{name}_file", "FILE", f"A file whose first line is the {name}.", Form.PATH),
        Setting(
            f"{name}_command",
            "COMMAND",
            f"A command that prints the {name}, for example 'pass show prod'. No shell runs it.",
            Form.COMMAND,
        ),
    )


def without_password(url: str) -> str:
    """Return a URL that may be stored.

    Raises:
        SettingError: it has a password.
    """
    # A URL may name several hosts, separated by commas, each with a user and perhaps a scheme of its own.
    parts = [part.strip() if "://" in part else f"any://{part.strip()}" for part in url.split(",")]
    if any(urlsplit(part).netloc.rpartition("@")[0].count(":") for part in parts):
        message = (
            "the URL has a password: a context stores no secrets. Leave it out, and name a file or command"
            " that has it"
        )
        raise SettingError(message)
    return url
