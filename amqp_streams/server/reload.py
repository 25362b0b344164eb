"""SIGHUP: read settings, certificates and users again and put them in force.

Laws: if a part has an error, the old part stays in force and the error is logged with its location. A link
that is still allowed is not affected. Settings that need a restart are named in the log and not applied.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from amqp_streams import names
from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError, PeerError
from amqp_streams.node import revoked
from amqp_streams.server.identity.guard import Guard
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.service import EventService
from amqp_streams.streams.access import Access
from amqp_streams.streams.redirects import Redirects
from amqp_streams.wire.security.mechanisms import ScramAlgorithm
from service_parts.health.machine import certificate_expires_ms
from service_parts.networks import is_this_machine
from service_parts.settings.differences import differences

AT_ONCE: Final = (
    "access",
    "anonymous",
    "external",
    "oauth",
    "plain_without_tls",
    "quotas",
    "redirects",
    "user_groups",
)
"""Settings that take effect when they are read again. The others need a restart."""
AT_ONCE_NAMES: Final = (*AT_ONCE, "redirect")
"""By all their names: a file has `[[redirect]]`."""
RELOAD: Final = "RELOAD"
"""The operation in the list of changes. SIGHUP has no user."""
PASSWORD_MECHANISMS: Final = frozenset({"PLAIN", *ScramAlgorithm})
"""The mechanisms with which a client is authenticated by the users file."""

Reread = Callable[[], NodeSettings]

log = structlog.get_logger("amqp_streams")


class Reloaded(StrEnum):
    """The result of reading a part again.

    FAILED: the old part is still in force, and a log line contains the error.
    """

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    NONE = "not configured"


def reload_parts(parts: Mapping[str, Callable[[], Reloaded]]) -> Mapping[str, Reloaded]:
    """Read each part again, independently of the others, and log the results."""
    results = {name: _reload_part(name, part) for name, part in parts.items()}
    written = {name: str(result) for name, result in results.items()}
    if Reloaded.FAILED in results.values():
        log.error("reload_incomplete", **written)
    else:
        log.info("reloaded", **written)
    return results


def note_reload(service: EventService, results: Mapping[str, Reloaded], certificate: Path | None) -> None:
    """Note the results of a reload for people who ask the node. `certificate`: of the TLS listeners."""
    about = service.about
    about.reload_failed = sorted(name for name, result in results.items() if result is Reloaded.FAILED)
    note_certificates(service, certificate)
    if results.get("settings") is Reloaded.CHANGED:
        about.settings.reload()
    written = {name: str(result) for name, result in results.items() if result is not Reloaded.NONE}
    service.audit.changes.add(None, RELOAD, names.NODE_TYPE, details=written)


def note_certificates(service: EventService, certificate: Path | None) -> None:
    """Note when the certificates expire. `certificate`: of the TLS listeners."""
    node = service.settings.node
    service.about.certificate_expires_ms = certificate_expires_ms(certificate)
    service.about.node_certificate_expires_ms = certificate_expires_ms(
        None if node is None else node.certificate
    )


def _reload_part(name: str, part: Callable[[], Reloaded]) -> Reloaded:
    try:
        return part()
    except Exception:
        log.exception("reload_failed", part=name)
        return Reloaded.FAILED


def reload_settings(service: EventService, guard: Guard, reread: Reread | None) -> Reloaded:
    """Read the configuration again and put it in force. If it has an error, nothing changes."""
    if reread is None:
        return Reloaded.NONE
    try:
        new = reread()
    except ConfigError as error:
        log.error("settings_not_reloaded", reason=str(error))
        return Reloaded.FAILED
    old = service.settings
    changed = set(differences(old, new))
    later = sorted(name for name in changed if name.split(".")[0] not in AT_ONCE)
    service.about.restart_needed = later
    if later:
        log.warning("restart_needed", settings=", ".join(later))
    # Only the settings that may change: the others stay as the node started with them.
    service.settings = now = old.model_copy(update={name: getattr(new, name) for name in AT_ONCE})
    guard.change(now)
    service.quotas.change(now.quotas)
    if (old.access, old.user_groups) != (now.access, now.user_groups):
        service.node.access = Access(now.access, now.user_groups)
        warn_if_open(now)
        close_what_is_revoked(service)
    if old.redirects != now.redirects:
        service.node.redirects = Redirects(now.redirects)
        service.reassociate()
    if old.external != now.external:
        shut_unmapped(service, guard)
    if old.anonymous is not now.anonymous:
        shut_anonymous(service, guard)
    return Reloaded.CHANGED if changed else Reloaded.UNCHANGED


def reload_users(service: EventService, users: UsersFile | None) -> Reloaded:
    """Read the users file again and close the connections of removed users.

    If the file has an error or is missing, nothing changes.
    """
    if users is None:
        return Reloaded.NONE
    try:
        changed = users.reload()
    except ConfigError as error:
        log.error("users_not_reloaded", reason=str(error))
        return Reloaded.FAILED
    if changed:
        known = set(users.names)
        # A copy: `shut` may end the connection at once.
        for connection in tuple(service.connections):
            if connection.mechanism in PASSWORD_MECHANISMS and connection.user not in known:
                log.warning("user_removed", user=connection.user)
                connection.shut(PeerError(names.CONNECTION_FORCED, "this user was removed"))
    return Reloaded.CHANGED if changed else Reloaded.UNCHANGED


def reload_certificates(tls: TlsContext | None) -> Reloaded:
    """Read the certificates again."""
    if tls is None:
        return Reloaded.NONE
    return Reloaded.CHANGED if tls.reload() else Reloaded.FAILED


def reload_tokens(guard: Guard) -> Reloaded:
    """Read the keys for tokens again."""
    read = guard.reload_tokens()
    return Reloaded.NONE if read is None else Reloaded.CHANGED if read else Reloaded.FAILED


def warn_if_open(settings: NodeSettings) -> None:
    """Warn if every user may do everything, and clients on other machines can connect."""
    listeners = (*settings.listen, *filter(None, [settings.admin_listen]))
    if not settings.access and not all(is_this_machine(listener.host) for listener in listeners):
        message = "every user may do everything on every log"
        log.warning("no_access_rules", message=message, remedy="write [[access]] rules")


def close_what_is_revoked(service: EventService) -> None:
    """Close the links that the current access rules do not allow.

    Other links are not touched. A link with a null target is checked again for each log.
    """
    for connection in tuple(service.connections):
        permissions = service.node.access.of(connection.identity)
        for link in connection.find_links(lambda _link: True):
            error = revoked(permissions, link.grant)
            if error is not None and not link.closing:
                log.info("link_revoked", user=connection.user, link=link.name, reason=error.description)
                link.close(error)
                service.effects.detached(link)
        connection.flush()
    service.effects.carry_out()


def shut_unmapped(service: EventService, guard: Guard) -> None:
    """Close the connections whose certificates now belong to another user or to no user."""
    for connection in tuple(service.connections):
        if connection.mechanism == "EXTERNAL" and connection.user != guard.certified_user(connection.channel):
            connection.shut(
                PeerError(names.CONNECTION_FORCED, "the certificate no longer belongs to this user")
            )


def shut_anonymous(service: EventService, guard: Guard) -> None:
    """Close the connections without a user that are no longer accepted."""
    for connection in tuple(service.connections):
        if (
            connection.admitted
            and connection.user is None
            and not guard.anonymous_allowed(connection.channel)
        ):
            connection.shut(
                PeerError(names.CONNECTION_FORCED, "connections without a user are no longer accepted")
            )
