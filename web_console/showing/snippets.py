"""How to read an event, or send it again, with other programs. Pure.

Laws: nothing of an event ends the quotes of a command, names a file for it, or acts on a terminal into which
the command is pasted.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

CURL_MAX: Final = 32 << 10
"""Characters of a command with curl."""
_DATA_FILE: Final = "event-data.bin"
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]+")
_URL: Final = re.compile(r"https?://[!-~]+")
_CONTENT_TYPE: Final = "datacontenttype"
_LOGIN: Final = '-H "authorization: Bearer $TOKEN"'
_PLAIN: Final = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in '"%')
"""The characters that a header with an attribute has as they are (CloudEvents HTTP binding, 3.1.3.2)."""


@dataclass(frozen=True, slots=True)
class Curl:
    """A command that sends an event. `hint`: what to do before. `problem`: why it is not available."""

    command: str = ""
    hint: str = ""
    problem: str = ""


def as_curl(
    url: str, attributes: Sequence[tuple[str, str]], data: str | None, *, with_token: bool = False
) -> Curl:
    """Return the command that sends a CloudEvent in binary mode.

    `data`: all of it; None if it is not text, or not known whole. `with_token`: the command sends the bearer
    token in the variable `TOKEN` of the shell.
    """
    try:
        headers = _headers(attributes)
    except ValueError as error:
        return Curl(problem=str(error))
    if not _URL.fullmatch(url):
        return Curl(problem="A command for curl is not available: the URL is not an http or https URL.")
    # Neither a list of URLs (--globoff) nor the name of a file (--data-raw): the event decides neither.
    parts = [shlex.join(["curl", "-X", "POST", "--globoff", url])]
    parts += [shlex.join(["-H", each]) for each in headers]
    parts += [_LOGIN] if with_token else []
    is_typed = data is not None and all(each.isprintable() or each == "\n" for each in data)
    if data is not None and is_typed:
        parts.append(shlex.join(["--data-raw", data]))
    else:
        parts.append(shlex.join(["--data-binary", f"@{_DATA_FILE}"]))
    command = " \\\n  ".join(parts)
    if len(command) > CURL_MAX:
        return Curl(
            problem=f"A command for curl is not available: it would have more than {CURL_MAX:,} characters."
        )
    hint = (
        f"Save the data of the event in the file {_DATA_FILE} first: the data is not text, has characters"
        " that act on a terminal, or is not on this page as a whole."
    )
    return Curl(command, "" if is_typed else hint)


def _headers(attributes: Sequence[tuple[str, str]]) -> list[str]:
    """Return the headers.

    Raises:
        ValueError: a header cannot have an attribute.
    """
    headers = []
    for name, value in attributes:
        if not _ATTRIBUTE.fullmatch(name):
            message = "A command for curl is not available: the name of an attribute is not of a-z and 0-9."
            raise ValueError(message)
        if any(
            ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or 0xD800 <= ord(each) < 0xE000 for each in value
        ):
            message = (
                f"A command for curl is not available: the attribute {name[:40]} has control characters."
            )
            raise ValueError(message)
        if name == _CONTENT_TYPE:
            if not value.isascii():
                message = f"A command for curl is not available: the attribute {name} is not ASCII."
                raise ValueError(message)
            headers.append(f"content-type: {value}")
        else:
            # curl leaves out a header without a value unless it ends with a semicolon.
            headers.append(f"ce-{name}: {quote(value, safe=_PLAIN)}" if value else f"ce-{name};")
    # Without this, curl sends the content type of a form.
    return headers if _CONTENT_TYPE in dict(attributes) else [*headers, "content-type:"]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads with the copied text: a user with a password, or with a token, or without a login."""

    user: str | None = None
    with_token: bool = False

    @property
    def hint(self) -> str:
        """What to do before."""
        if self.with_token:
            return "Put your token into the variable AMQP_STREAMS_TOKEN first."
        return "" if self.user is None else "Put your password into the variable AMQP_STREAMS_PASSWORD first."


def as_command(url: str, log: str, partition: str, offset: int, reader: Reader) -> str:
    """Return the command that prints an event."""
    words = ["amqp-streams", "receive", log, "--url", url]
    words += [] if reader.user is None else ["--user", reader.user]
    return shlex.join([*words, "--partition", partition, "--from", str(offset), "--max", "1"])


def as_python(url: str, log: str, partition: str, offset: int, reader: Reader) -> str:
    """Return a program that reads an event."""
    imports, login = "", ""
    if reader.with_token:
        imports = "import os\n\nfrom amqp_streams.client import SaslOptions\n"
        login = ", sasl=SaslOptions(token=os.environ['AMQP_STREAMS_TOKEN'])"
    elif reader.user is not None:
        imports = "import os\n\n"
        login = f", user={reader.user!r}, password=os.environ['AMQP_STREAMS_PASSWORD']"
    return (
        f"{imports}from amqp_streams.client.blocking import connect\n\n"
        f"with connect({url!r}{login}) as client:\n"
        f"    for run in client.read_range({log!r}, {partition!r}, {offset}, {offset + 1}):\n"
        "        for message in run.messages:\n"
        "            print(message)\n"
    )
