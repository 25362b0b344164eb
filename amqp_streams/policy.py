"""Who may do what, how much of it, and what is served elsewhere: the sections `access`, `user_groups`,
`quotas`, `redirect`.

All of them are read again on SIGHUP. What they mean is decided in
`streams/access.py`, `server/limits/quotas.py` and `streams/redirects.py`.
"""

import re
from collections.abc import Sized
from enum import StrEnum
from typing import Annotated, Final, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from service_parts.settings.fields import Bytes, Settings

ANYONE: Final = "*"
"""In rules and quotas: every user that logged in."""
ANONYMOUS: Final = "anonymous"
"""In rules and quotas: a client that did not log in."""
GROUP_PREFIX: Final = "group:"
ACCESS_RULES_MAX: Final = 1000

_NAME_CHARACTERS_MAX: Final = 255
_LOG_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,255}")


class Right(StrEnum):
    """What a rule can allow on a log."""

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
    """A user, `group:NAME`, `anonymous`, `*`.

    Users have no patterns: one that looks like a pattern would silently match nobody.
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
    """Who may do what: `users` have the rights `allow` on the logs that match `logs`.

    Without a rule, everything is allowed; with at least one, everything that no rule allows is refused.
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
    """What the user NAME may use on all its connections together. A quota that is not set has no bound."""

    connections: int | None = Field(default=None, ge=0, description="Connections at once.")
    links: int | None = Field(default=None, ge=0, description="Links at once, on all connections together.")
    bytes_in: Bytes | None = Field(
        default=None, ge=1000, description="Bytes of events that the user may send in a second."
    )
    bytes_out: Bytes | None = Field(
        default=None, ge=1000, description="Bytes of events that the user may receive in a second."
    )


class Redirect(Settings):
    """Partitions that another container serves, of the logs that match `log`."""

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
