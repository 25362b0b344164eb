"""[io] A worker: a gateway process whose parent tells it what to do. The parent starts this module.

Its argument is the descriptor of the channel to the parent. The first message has the settings, and the
contents of their files.
"""

import socket
import sys
from typing import Final

import structlog

from knative_gateway import server
from knative_gateway.errors import ConfigError, GatewayError
from knative_gateway.running.channel import received
from knative_gateway.running.parent import ParentLink
from knative_gateway.workers.handing import HandedFiles
from service_parts import logging_setup

FAILED: Final = 1
USAGE_ERROR: Final = 2

log = structlog.get_logger("knative_gateway")


def main(descriptor: int) -> int:
    """Run a worker until SIGTERM. Returns its exit status."""
    end = socket.socket(fileno=descriptor)
    boot = received(end)
    with HandedFiles() as files:
        settings = files.settings(boot.payload)
        tags = {"worker": boot.fields["worker"]}
        logging_setup.configure(settings.log_format, settings.log_level, tags=tags)
        link = ParentLink(
            end,
            leads=boot.fields["leads"],
            settings=boot.payload,
            number=boot.fields["worker"],
            words=files.words,
            files=boot.fields["files"],
        )
        try:
            return server.run(settings, parent=link, reread=lambda: files.settings(link.settings))
        except GatewayError as error:
            log.error("worker_not_started", reason=files.words(str(error)))
            return USAGE_ERROR if isinstance(error, ConfigError) else FAILED


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
