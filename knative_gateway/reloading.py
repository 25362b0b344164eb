"""[io] What a reload of the gateway changes, and what it does not."""

from typing import Final

import structlog

from knative_gateway.config import GatewaySettings
from service_parts.settings.differences import differences

AT_ONCE: Final = frozenset(
    {"jwt", "rules", "subscribers.ca", "subscribers.certificate", "subscribers.key", "tokens"}
)
"""Settings that take effect when they are read again, with their parts. The others need a restart."""

log = structlog.get_logger("knative_gateway")


def warn_of_restart(old: GatewaySettings, new: GatewaySettings) -> list[str]:
    """Log and return which changed settings take effect at the next start only."""
    later = [
        name for name in differences(old, new) if name not in AT_ONCE and name.split(".")[0] not in AT_ONCE
    ]
    if later:
        log.warning("restart_needed", settings=", ".join(sorted(later)))
    return sorted(later)
