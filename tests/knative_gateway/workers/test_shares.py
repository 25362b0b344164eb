"""The limits of the gateway are not multiplied by its workers."""

import pytest

from knative_gateway.config import GatewaySettings
from knative_gateway.workers.shares import OF_LIMITS, OF_SUBSCRIBERS, share


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_the_parts_of_all_workers_are_the_limit_and_a_remainder_at_most(workers: int) -> None:
    settings = GatewaySettings()
    part = share(settings, workers)
    for whole, mine, names in (
        (settings.limits, part.limits, OF_LIMITS),
        (settings.subscribers, part.subscribers, OF_SUBSCRIBERS),
    ):
        for name in names:
            limit = getattr(whole, name)
            assert limit <= workers * getattr(mine, name) < limit + workers, name


def test_one_worker_gets_everything() -> None:
    assert share(GatewaySettings(), 1) == GatewaySettings()


def test_a_part_is_a_valid_setting() -> None:
    small = GatewaySettings.model_validate(
        {"limits": {"connections": 1, "pending": 1 << 20}, "subscribers": {"held": 64 << 10, "in_flight": 1}}
    )
    part = share(small, 64)
    assert (part.limits.connections, part.limits.pending) == (1, 1 << 20)
    assert (part.subscribers.held, part.subscribers.in_flight) == (64 << 10, 1)
    assert GatewaySettings.model_validate_json(part.model_dump_json(exclude={"amqp_listen"})) == part


def test_limits_of_one_request_or_event_stay_as_they_are() -> None:
    settings, part = GatewaySettings(), share(GatewaySettings(), 4)
    assert part.limits.body == settings.limits.body
    assert part.limits.batch_events == settings.limits.batch_events
    assert part.subscribers.look_ahead == settings.subscribers.look_ahead
    assert part.subscribers.timeout == settings.subscribers.timeout
