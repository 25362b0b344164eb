"""Of the workers of one gateway, one leads: it writes statuses and keeps logs. The others follow."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.knative_gateway.controller.rig import Here, Plane, here_at, soon
from tests.knative_gateway.controller.world import broker, trigger

PATH = "/broker/default/b"
LOG = "broker.default.b"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with here_at(tmp_path) as made:
        yield made


async def test_a_follower_serves_the_routes_and_writes_nothing(here: Here) -> None:
    plane = Plane()
    async with here.controller() as leader, here.controller(plane=plane, leads=False) as follower:
        await here.send(broker())
        key = await here.send(trigger())
        await here.ready(key)

        async def served() -> bool:
            route = plane.served(PATH)
            return route is not None and [each.name for each in route.subscribers] == ["t"]

        await soon(served)
        await leader.settled()  # it writes an Event object after the status
        await follower.settled()
        version, _ = await here.store.resources.list("", "Service")
        await follower.check_logs()
        await follower.count()
        await follower.forget_old_events()
        await follower.settled()
        assert (await here.store.resources.list("", "Service"))[0] == version


async def test_a_follower_that_leads_finishes_what_the_leader_left(here: Here) -> None:
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
    async with here.controller(leads=False) as follower:

        async def served() -> bool:
            return here.plane.served(PATH) is not None

        await soon(served)
        await here.delete(key)
        other = await here.send(broker("other"))

        async def awaited() -> bool:
            return follower.lacking is not None and here.plane.served(PATH) is None

        await soon(awaited)
        assert list(here.logs.logs) == [LOG], "a follower neither creates nor deletes logs"
        follower.lead()
        await here.ready(other)

        async def kept() -> bool:
            return list(here.logs.logs) == ["broker.default.other"]

        await soon(kept)


async def test_a_follower_does_not_serve_a_successor_on_the_log_of_its_predecessor(here: Here) -> None:
    plane = Plane()
    async with here.controller() as leader, here.controller(plane=plane, leads=False) as follower:
        key = await here.send(broker())
        await here.ready(key)
        here.logs.away = True  # the leader cannot delete the log yet
        await here.delete(key)
        await here.send(broker())

        async def released() -> bool:
            return plane.served(PATH) is None

        await soon(released)
        await here.ready(key, "False")
        await follower.settled()
        assert plane.served(PATH) is None
        here.logs.away = False
        await here.ready(key)
        await leader.settled()

        async def served() -> bool:
            return plane.served(PATH) is not None

        await soon(served)
