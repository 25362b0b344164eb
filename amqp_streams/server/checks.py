"""[io] `amqp-streams serve --check`: reads and tries what a starting node needs, and keeps nothing.

Law: it changes nothing, and disturbs no node that runs: what such a node uses is a remark, not an error.
"""

import asyncio
import contextlib
import importlib.util
import os
import socket
import ssl
import time
from collections.abc import Iterator
from errno import EADDRINUSE
from pathlib import Path
from typing import Final

from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError, DirectoryLockedError, StorageError
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.console import check_console
from amqp_streams.server.homes import credentials
from amqp_streams.server.identity.tokens import TokenCheck
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.listening.sockets import bind
from amqp_streams.server.listening.tls import server_context
from amqp_streams.server.opening import KAFKA_EXTRA
from amqp_streams.storage import offline
from service_parts.settings.listeners import Listener as Address

_TURNS: Final = 4
"""More than both sides of a TLS handshake need."""


def check_start(settings: NodeSettings) -> list[str]:
    """Try what a starting node needs: files, libraries, addresses, the data directory. Returns remarks.

    Kafka is not asked.

    Raises:
        ConfigError: a node cannot start with these settings. The message says why.
        StorageError: the data directory is not usable.
    """
    check_files(settings)
    if settings.kafka is not None and importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(KAFKA_EXTRA)
    if settings.console is not None:
        check_console(settings.console)
    remarks = list(asyncio.run(_check_addresses(settings)))
    if settings.node is not None:
        _check_certificate(settings.node)
        remarks.extend(_check_advertised(settings.node))
    if settings.data_dir is not None:
        remarks.extend(_check_folder(settings.data_dir))
    return remarks


def check_files(settings: NodeSettings) -> None:
    """Read the certificates, the users file, the keys for tokens and the secret of the nodes.

    Raises:
        ConfigError: a file is not usable. The message says why.
    """
    if settings.tls is not None:
        server_context(settings.tls)
    if settings.users_file is not None:
        UsersFile.load(settings.users_file)
    if settings.node is not None:
        credentials.load(settings.node)
    if settings.oauth is not None:
        TokenCheck(settings.oauth, lambda: time.time_ns() // 1_000_000)


async def _check_addresses(settings: NodeSettings) -> list[str]:
    wanted: list[Address] = [*settings.listen, *filter(None, [settings.admin_listen])]
    if settings.console is not None:
        wanted.append(settings.console.listen)
    if settings.node is not None:
        wanted.append(settings.node.listen)
    remarks = []
    for address in wanted:
        try:
            for sock in await bind(address):
                sock.close()
        except ConfigError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != EADDRINUSE:
                raise
            remarks.append(f"{address} is in use by another process, perhaps by the node that runs now")
    return remarks


def _check_certificate(settings: PeeringSettings) -> None:
    """Let the node connect to itself in memory: both sides verify its certificate as other nodes do."""
    found = credentials.load(settings)
    if found.calling is None or found.listening is None:
        return
    name = settings.certificate_name or settings.advertised_host
    to_caller, to_called = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = found.calling.wrap_bio(to_caller, to_called, server_hostname=name)
    called = found.listening.wrap_bio(to_called, to_caller, server_side=True)
    try:
        for _ in range(_TURNS):
            for side in (caller, called):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        reason = (
            error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error.reason)
        )
        message = f"node.certificate: other nodes would refuse {settings.certificate}: {reason}"
        raise ConfigError(message) from error


def _check_advertised(settings: PeeringSettings) -> Iterator[str]:
    host = settings.advertised_host
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        yield f"node.advertise: this machine does not find {host}: {reason}"


def _check_folder(folder: Path) -> Iterator[str]:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        message = f"data_dir: {existing} is not a directory"
        raise ConfigError(message)
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        message = f"data_dir: this user may not read and write in {existing}"
        raise ConfigError(message)
    if existing != folder or not any(folder.iterdir()):
        return
    try:
        with offline.unlocked(folder, force=False):
            offline.check_format(folder)
    except DirectoryLockedError as error:
        yield str(error).partition(": stop ")[0]
    except OSError as error:
        message = f"{error.filename or folder}: {error.strerror or error}"
        raise StorageError(message) from error
