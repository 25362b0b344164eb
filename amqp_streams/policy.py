"""Access rules, quotas and redirects: the sections `access`, `user_groups`, `quotas`, `redirect`.

All of them are read again on SIGHUP. `streams/access.py`, `server/limits/quotas.py` and
`streams/redirects.py` apply them.
"""

import re
from collections.abc import Sized
from enum import StrEnum
from typing import Annotated, Final, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from service_parts.settings.fields import Bytes, Settings

ANYONE: Final = "*"
"""In rules and quotas: every user that is logged in."""
ANONYMOUS: Final = "anonymous"
"""In rules and quotas: a client without a login."""
GROUP_PREFIX: Final = "group:"
ACCESS_RULES_MAX: Final = 1000

_NAME_CHARACTERS_MAX: Final = 255
_LOG_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,255}")


class Right(StrEnum):
    """The rights on a log."""

    SEND = "send"
    RECEIVE = "receive"
    INFO = "info"
    MANAGE = "manage"


def _name(text: str) -> str:
    if not 1 <= len(text) <= _NAME_CHARACTERS_MAX or not text.isprintable():
        message = (
            f"{text[:40]!r} is not a valid name: use 1 to {_NAME_CHARACTERS_MAX} characters and no control"
            " characters"
        )
        raise ValueError(message)
    return text


def _who(text: str) -> str:
    """Check a subject of a rule: a user, `group:NAME`, `anonymous` or `*`.

    Patterns of user names are refused, because they are not supported and would match no user.

    Raises:
        ValueError: the text is a pattern or not a valid name.
    """
    name = text.removeprefix(GROUP_PREFIX)
    if text != ANYONE and any(character in name for character in "*?"):
        message = (
            f"{text[:40]!r} is not a user, 'group:NAME', '{ANONYMOUS}' or '{ANYONE}': patterns of users are"
            " not supported, use a group"
        )
        raise ValueError(message)
    _name(name)
    return text


def _log_pattern(text: str) -> str:
    if not _LOG_PATTERN.fullmatch(text):
        message = (
            f"{text[:40]!r} is not a valid pattern of log names: use letters, digits, '.', '-', '_', and '*',"
            " '?', '[...]' as in file names"
        )
        raise ValueError(message)
    return text


_Items = TypeVar("_Items", bound=Sized)


def _some(items: _Items) -> _Items:
    if not items:
        message = "is empty: remove it, or add an entry"
        raise ValueError(message)
    return items


_Some = AfterValidator(_some)
UserName = Annotated[str, AfterValidator(_name)]
GroupName = Annotated[str, AfterValidator(_name)]
Who = Annotated[str, AfterValidator(_who)]
LogPattern = Annotated[str, AfterValidator(_log_pattern)]


class AccessRule(Settings):
    """Which users have which rights: `users` have the rights `allow` on the logs that match `logs`.

    Without rules, everything is allowed. With at least one rule, everything that no rule allows is refused.
    """

    users: Annotated[tuple[Who, ...], _Some] = Field(
        description=(
            "Users, `group:NAME`, `anonymous` (connections without a user), or `*` (every user that logged"
            " in)."
        ),
    )
    logs: Annotated[tuple[LogPattern, ...], _Some] = Field(
        description="Names of logs, or patterns with `*`, `?` and `[...]`."
    )
    allow: Annotated[tuple[Right, ...], _Some] = Field(description="The rights that the rule gives.")
    consumer_groups: Annotated[tuple[UserName, ...], _Some] | None = Field(
        default=None,
        description=(
            "Narrows `receive` to these consumer groups: names or patterns. Not set: any group, and no group."
        ),
    )

    @model_validator(mode="after")
    def _groups_narrow_reading_only(self) -> Self:
        if self.consumer_groups is not None and (
            Right.MANAGE in self.allow or Right.RECEIVE not in self.allow
        ):
            message = (
                "consumer_groups restricts 'receive': allow 'receive' in this rule, and 'manage' in another"
                " rule"
            )
            raise ValueError(message)
        return self


class Quota(Settings):
    """What one user may use, over all its connections. A quota that is not set does not limit."""

    connections: int | None = Field(default=None, ge=0, description="Connections at once.")
    links: int | None = Field(default=None, ge=0, description="Links at once, on all connections together.")
    bytes_in: Bytes | None = Field(
        default=None, ge=1000, description="Bytes of events that the user may send in a second."
    )
    bytes_out: Bytes | None = Field(
        default=None, ge=1000, description="Bytes of events that the user may receive in a second."
    )


class Redirect(Settings):
    """Partitions of the logs that match `log`, which another container serves."""

    log: LogPattern = Field(description="Name of a log, or a pattern with `*`, `?` and `[...]`.")
    partitions: Annotated[tuple[Annotated[int, Field(ge=0)], ...], _Some] | None = Field(
        default=None, description="Numbers of the partitions that the other container serves. Not set: all."
    )
    host: str = Field(min_length=1, max_length=255, description="Host of the other container.")
    port: int = Field(ge=1, le=65_535, description="Port of the other container.")
    container: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="The container-id of the other container, which clients get.",
    )
