"""The actions of users on Brokers, Channels, Triggers and Subscriptions, at any moment."""

from collections.abc import Sequence
from typing import Any, Final

from knative_gateway.ports import BackoffPolicy, Delivery
from tests.simulation_gateway.api import DEFAULT, ApiClient, delivery_spec
from tests.simulation_gateway.filters import FILTERS, NOTHING, Filter
from tests.simulation_gateway.subscribers import MOODS
from tests.simulation_gateway.targets import Role, Target, Version
from tests.simulation_gateway.world import World

ORDER: Final = "knative-gateway/order"
START: Final = "knative-gateway/start"
BAD_CONFIGS: Final = (
    {"delivery": "retry: !!bool x"},
    {"delivery": "10: 3"},
    {"delivery": "retry: !!timestamp abc"},
    {"delivery": "{"},
    {"delivery": "retry: -1"},
    {"partitions": "many"},
    {"retention": "P-7D"},
    {"delivery": "~: 1"},
)


LATE_MS: Final = 500
SITE_MOODS: Final = {
    Role.HEALTHY: "good",
    Role.PICKY: "good",
    Role.HANGING: "silent",
    Role.LATE: "closing",
}
DELIVERIES: Final = {
    Role.HEALTHY: Delivery(),
    Role.PICKY: Delivery(retry=6, backoff_policy=BackoffPolicy.LINEAR, backoff_delay_ms=10_000),
    Role.HANGING: Delivery(timeout_ms=1000),
    Role.LATE: Delivery(retry=1, timeout_ms=LATE_MS),
}


class Users:
    """The users. `bad`: objects that cannot work, by kind and name."""

    def __init__(self, world: World) -> None:
        self.world: Final = world
        self.random: Final = world.random
        self.bad: Final[set[str]] = set()
        self._made = 0

    # -- the beginning

    async def begin(self) -> None:
        """Create the first objects."""
        size, choice = self.world.size, self.random.choice
        for number in range(choice(size.brokers)):
            await self.create_source("Broker", f"b{number}")
        for number in range(choice(size.channels)):
            await self.create_source("Channel", f"c{number}")
        for path in list(self.world.sources):
            await self.create_subscriber(path, Role.HEALTHY)
            for role in self.world.roles:
                await self.create_subscriber(path, role)
            for _ in range(choice(size.subscribers)):
                await self.create_subscriber(path)

    async def create_source(self, kind: str, name: str) -> None:
        """Create a Broker or Channel. A Broker may have a broken ConfigMap: then it cannot be ready."""
        api = self.world.api()
        if api is None:
            return
        fields: dict[str, Any] = {}
        annotations: dict[str, str] = {}
        if self.random.random() < 0.2:
            annotations["knative-gateway/duplicate-window"] = "PT1M"
        if kind == "Broker" and self.random.random() < 0.3:
            fields["spec"] = {"delivery": delivery_spec(DEFAULT, None)}
        status, _ = await api.create(kind, name, annotations, **fields)
        if status == 201:
            self.world.ledger.born[f"{kind.lower()}.default.{name}"] = self.world.loop.now_ms
        if status in {201, 409}:
            self.world.sources[f"/{kind.lower()}/default/{name}"] = name

    # -- subscribers

    async def create_subscriber(self, path: str, role: Role = Role.ORDINARY) -> None:
        """Create a Trigger or Subscription with its own site."""
        world, random = self.world, self.random
        api = world.api()
        if api is None:
            return
        self._made += 1
        tag, name = f"n{self._made}", f"x{self._made}"
        is_trigger = path.startswith("/broker/")
        kind = "Trigger" if is_trigger else "Subscription"
        site = await world.sites.add(f"s{self._made}", random)
        is_fixed = site.is_fixed = role is not Role.ORDINARY
        site.mood = SITE_MOODS[role] if is_fixed else random.choice(tuple(MOODS))
        if role is Role.LATE:
            world.network.late_ms[world.sites.addresses[site.name]] = LATE_MS
        elif role is Role.PICKY:
            site.picks_max = 2
        delivery = DELIVERIES[role] if is_fixed else self._delivery()
        has_sink = role is Role.HANGING or (not is_fixed and random.random() < 0.5)
        sink = await self._sink(tag, is_fixed=is_fixed) if has_sink else None
        order = "unordered" if is_fixed else random.choice(("unordered", "unordered", "key", "ordered"))
        filter_ = FILTERS[0] if is_fixed or not is_trigger else random.choice(FILTERS)
        target = Target(
            tag,
            kind,
            name,
            path.strip("/").replace("/", "."),
            site.name,
            delivery,
            order,
            world.loop.now_ms,
            [Version(filter_)],
            role,
            site.picked,
            replies_to=path.strip("/").replace("/", ".") if is_trigger else "",
            retry_max=delivery.retry,
        )
        annotations = self._annotations(order, is_fixed=is_fixed)
        spec: dict[str, Any] = {"subscriber": {"uri": f"http://{site.name}.test/t-{tag}"}}
        if delivery is not DEFAULT:
            spec["delivery"] = delivery_spec(delivery, sink)
        spec |= self._source(path, filter_)
        world.ledger.targets[tag] = target
        status, document = await api.create(kind, name, annotations, spec=spec)
        if status == 201:
            target.uid = document["metadata"]["uid"]
        else:
            target.is_unclear = True
            world.ledger.check(status in {0, 503}, f"{kind} was refused: {status} {document}")

    def _annotations(self, order: str, *, is_fixed: bool) -> dict[str, str]:
        random = self.random
        annotations = {ORDER: order}
        if not is_fixed and random.random() < 0.2:
            annotations[START] = random.choice(("earliest", "offset=0=3", "offset=0=99999,1=@earliest"))
        if not is_fixed and random.random() < 0.2:
            annotations["knative-gateway/in-flight-max"] = "1"
        if not is_fixed and random.random() < 0.1:
            annotations["knative-gateway/per-second-max"] = "5"
        return annotations

    def _source(self, path: str, filter_: Filter) -> dict[str, Any]:
        name = self.world.sources[path]
        if path.startswith("/broker/"):
            return {"broker": name, "filters": filter_.filters}
        return {"channel": {"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": name}}

    async def _sink(self, tag: str, *, is_fixed: bool) -> str:
        site = await self.world.sites.add(f"d{tag}", self.random)
        site.is_fixed = is_fixed
        if not is_fixed:
            site.mood = self.random.choice(tuple(MOODS))
        return f"http://{site.name}.test/d-{tag}"

    def _delivery(self) -> Delivery:
        random = self.random
        if random.random() < 0.15:
            return DEFAULT
        return Delivery(
            retry=random.choice((0, 0, 1, 3, 6)),
            backoff_policy=random.choice(tuple(BackoffPolicy)),
            backoff_delay_ms=random.choice((0, 100, 1000, 5000)),
            timeout_ms=random.choice((None, 500, 2000, 10_000)),
            retry_after_max_ms=random.choice((None, 0, 10_000)),
        )

    # -- changes

    def living(self, *, fixed: bool = False) -> Sequence[Target]:
        targets = self.world.ledger.targets.values()
        return [
            each
            for each in targets
            if each.deleted_ms is None and each.uid and (fixed or each.role is Role.ORDINARY)
        ]

    async def change(self) -> None:
        """One change of one thing."""
        living, api = self.living(), self.world.api()
        if api is None or not living:
            return
        target = self.random.choice(living)
        changes = (
            self.change_filter,
            self.change_filter,
            self.change_delivery,
            self.pause,
            self.replay,
            self.replay,
            self.redrive,
            self.delete,
            self.read,
        )
        await self.random.choice(changes)(api, target)

    async def change_filter(self, api: ApiClient, target: Target) -> None:
        if target.kind != "Trigger":
            return
        filter_: Filter = self.random.choice((*FILTERS, NOTHING))
        target.filters.append(Version(filter_))
        await self._patched(api, target, {"spec": {"filters": filter_.filters or None}})

    async def change_delivery(self, api: ApiClient, target: Target) -> None:
        target.delivery = self._delivery()
        target.retry_max = max(target.retry_max, target.delivery.retry)
        spec = delivery_spec(target.delivery, None)
        missing = {"timeout", "retryAfterMax"} - spec.keys()
        await self._patched(api, target, {"spec": {"delivery": {**spec, **dict.fromkeys(missing)}}})

    async def _patched(self, api: ApiClient, target: Target, change: dict[str, Any]) -> None:
        self.world.ledger.disturb(target)
        target.generation = 1 << 30
        status, document = await api.patch(target.kind, target.name, change)
        if status == 200:
            target.generation = document["metadata"]["generation"]
        else:
            target.is_unclear = True
            self.world.ledger.check(
                status in {0, 409, 503}, f"{change} of {target.name}: {status} {document}"
            )
        self.world.ledger.disturb(target)

    async def pause(self, api: ApiClient, target: Target) -> None:
        await api.act(target.kind, target.name, "pause")
        self.world.spawn(self._resume(target))

    async def _resume(self, target: Target) -> None:
        await self.world.sleep(100, 20_000)
        while target.deleted_ms is None:
            api = self.world.api()
            if api is not None and await api.act(target.kind, target.name, "resume") == 200:
                return
            await self.world.sleep(1000)

    async def replay(self, api: ApiClient, target: Target) -> None:
        start = self.random.choice(
            ("earliest", "new", "offset=0=2", "offset=0=@latest", "time=2023-11-14T22:31:00Z")
        )
        self.world.ledger.disturb(target)
        target.is_restless |= self.world.is_replicated  # the other replica carries it out later
        target.replays += 1
        status = await api.act(target.kind, target.name, "replay", start=start)
        target.replays -= 1
        self.world.ledger.disturb(target)
        if start != "earliest" or status != 200:
            # Events before that position are not due any more, wherever it is.
            target.ready_ms = None
        target.generation = max(target.generation, 1)

    async def redrive(self, api: ApiClient, target: Target) -> None:
        target.is_restless = True
        self.world.ledger.disturb(target)
        await api.act(target.kind, target.name, "redrive")
        self.world.ledger.disturb(target)

    async def delete(self, api: ApiClient, target: Target) -> None:
        target.deleted_ms = self.world.loop.now_ms
        self.world.ledger.disturb(target)
        await self._delete(api, target.kind, target.name)
        if self.random.random() < 0.8:
            path = "/" + target.log.replace(".", "/")
            if path in self.world.sources:
                await self.create_subscriber(path)

    async def _delete(self, api: ApiClient | None, kind: str, name: str) -> None:
        """Delete an object; ask again until it is deleted."""
        while api is None or await api.delete(kind, name) not in {200, 404}:
            await self.world.sleep(1000)
            api = self.world.api()

    async def read(self, api: ApiClient, target: Target) -> None:
        prefix = (
            "/apis/eventing.knative.dev/v1" if target.kind == "Trigger" else "/apis/messaging.knative.dev/v1"
        )
        status, _ = await api.get(
            f"{prefix}/namespaces/default/{target.kind.lower()}s/{target.name}/deliveries"
        )
        self.world.ledger.check(status in {0, 200, 404, 503}, f"deliveries of {target.name}: {status}")
        status, _ = await api.get("/metrics")
        self.world.ledger.check(status in {0, 200}, f"metrics: {status}")

    async def break_config(self) -> None:
        """A ConfigMap that no Broker can use, and a Broker that uses it."""
        api = self.world.api()
        if api is None:
            return
        self._made += 1
        name = f"bad{self._made}"
        await api.create("ConfigMap", name, {}, data=dict(self.random.choice(BAD_CONFIGS)))
        config = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
        await api.create("Broker", name, {}, spec={"config": config})
        self.bad.add(f"Broker {name}")

    async def create_bad_subscriber(self) -> None:
        """A Trigger that cannot work: its destination is denied, or is not there."""
        api = self.world.api()
        brokers = [name for path, name in self.world.sources.items() if path.startswith("/broker/")]
        if api is None or not brokers:
            return
        self._made += 1
        name = f"bad{self._made}"
        reference = {"apiVersion": "v1", "kind": "Service", "name": "absent"}
        destination = self.random.choice(({"ref": reference}, {"uri": "http://169.254.169.254/"}))
        await api.create(
            "Trigger", name, {}, spec={"broker": self.random.choice(brokers), "subscriber": destination}
        )
        self.bad.add(f"Trigger {name}")

    async def recreate_broker(self) -> None:
        """Delete a Broker, and create one with the same name at once. It has a new log."""
        paths = [path for path in self.world.sources if path.startswith("/broker/")]
        api = self.world.api()
        if api is None or not paths or self.world.is_replicated:
            return
        path = self.random.choice(paths)
        name, log = self.world.sources[path], path.strip("/").replace("/", ".")
        interval = [self.world.loop.now_ms - 20_000, self.world.loop.now_ms + 60_000]
        self.world.ledger.unusual.append(interval)
        for target in self.world.ledger.targets.values():
            if target.log == log:
                target.ready_ms = None
                self.world.ledger.disturb(target)
        del self.world.sources[path]
        stored = self.world.node.logs.get(log)
        await self._delete(api, "Broker", name)
        if stored is not None:
            self.world.ledger.deleted_logs.append((log, stored.incarnation))
        await self.world.sleep(0, 3000)
        while path not in self.world.sources:
            await self.create_source("Broker", name)
            await self.world.sleep(10, 500)
        self.world.ledger.recreated[log].append((interval[0] + 20_000, self.world.loop.now_ms + 5_000))
        for target in self.world.ledger.targets.values():
            if target.log == log:
                target.ready_ms = None
                self.world.ledger.disturb(target)
