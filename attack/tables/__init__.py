"""The attacks, by what they use up. `all_attacks()` is all of them."""

from attack.report import Attack
from attack.tables import (
    batches,
    brokers,
    disks,
    doors,
    frames,
    kafka,
    kept,
    links,
    objects,
    pipelines,
    sizes,
    strangers,
    subscribers,
    tenants,
    timers,
)


def all_attacks() -> tuple[Attack, ...]:
    """In the order in which they run."""
    node = (
        *links.ATTACKS,
        *batches.ATTACKS,
        *kept.ATTACKS,
        *frames.ATTACKS,
        *strangers.ATTACKS,
        *timers.ATTACKS,
        *sizes.ATTACKS,
        *disks.ATTACKS,
    )
    return (
        *node,
        *doors.ATTACKS,
        *pipelines.ATTACKS,
        *objects.ATTACKS,
        *tenants.ATTACKS,
        *subscribers.ATTACKS,
        *brokers.ATTACKS,
        *kafka.ATTACKS,
    )
