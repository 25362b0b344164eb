"""`amqp-streams serve --check`.

Reads the files that settings name as a starting node does, and keeps nothing.
"""

import time

from amqp_streams.config import NodeSettings
from amqp_streams.server.identity.tokens import TokenCheck
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.listening.tls import server_context


def check_files(settings: NodeSettings) -> None:
    """Read the certificates, the users file and the keys for tokens.

    Raises:
        ConfigError: a file is not usable. The message says why.
    """
    if settings.tls is not None:
        server_context(settings.tls)
    if settings.users_file is not None:
        UsersFile.load(settings.users_file)
    if settings.oauth is not None:
        TokenCheck(settings.oauth, lambda: time.time_ns() // 1_000_000)
