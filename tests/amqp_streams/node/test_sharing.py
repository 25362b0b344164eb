"""What is refused on logs that several nodes share."""

from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node.permits import require_available
from amqp_streams.streams.attach import AttachRequest
from amqp_streams.wire.types import ULong


def request(**given: Any) -> AttachRequest:
    return AttachRequest(**{"link": "l", "container": "c", "consumer": True, "address": "log", **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"properties": {names.CONSUMER_GROUP: "g"}}, "consumer groups"),
        ({"properties": {names.EPOCH: ULong(1)}}, "epochs of consumers"),
        ({"durable": True}, "durable subscriptions"),
        (
            {"address": None, "no_source": True},
            "receivers without a source, which end a durable subscription,",
        ),
    ],
)
def test_what_a_home_must_decide_is_refused_without_homes(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PeerError, match=f"{words} are not offered by this node.*node.listen") as refused:
        require_available(request(**given), shared=True)
    assert refused.value.condition == names.NOT_IMPLEMENTED
    require_available(request(**given), shared=True, homes=True)
    require_available(request(**given), shared=False)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"consumer": False},
        {"address": "log/$info", "durable": True},
        {"consumer": False, "properties": {names.PRODUCER_ID: "p"}},
    ],
)
def test_other_links_are_not_refused(given: dict[str, Any]) -> None:
    require_available(request(**given), shared=True)
