"""[io] The whole gateway: it creates and connects the parts, and starts and stops them in order.

Order of the start: the event log node (unless the settings name one), the store, the data plane, the control
plane, the listener; then the gateway is ready.

Order of the stop (SIGTERM, SIGINT): the gateway is not ready, but still serves (`shutdown_delay`); the
listener finishes its requests; all other parts stop in the opposite order. The exit status is 0.
"""

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry

from knative_gateway.addressing import ServiceMap
from knative_gateway.api import Api, ApiSettings, Namespaces, load_directory
from knative_gateway.config import GatewaySettings
from knative_gateway.controller.controller import Controller
from knative_gateway.data_plane import GatewayDataPlane, addressed
from knative_gateway.dispatcher.dispatcher import Dispatcher
from knative_gateway.dispatcher.metrics import DispatcherMetrics
from knative_gateway.dispatcher.posting.sending import Sender
from knative_gateway.engine.appending import AppendLimits
from knative_gateway.engine.embedded import EmbeddedNode, embedded_node
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.errors import ConfigError, GatewayError
from knative_gateway.health.asking import Health, about
from knative_gateway.health.facts import Use
from knative_gateway.http.listening import HttpServer, serve_http
from knative_gateway.http.web import Figures, Web
from knative_gateway.ingress.app import Ingress
from knative_gateway.ingress.direct import FastPath
from knative_gateway.ingress.inside import Inside
from knative_gateway.part_settings import (
    controller_settings,
    destinations,
    dispatch_settings,
    ingress_limits,
    send_settings,
    subscribers_tls,
)
from knative_gateway.reloading import warn_of_restart
from knative_gateway.replaying import DispatcherReplays
from knative_gateway.running import garbage
from knative_gateway.running.addresses import base_url
from knative_gateway.running.console import GatewayConsole
from knative_gateway.running.figures import GatewayFigures
from knative_gateway.running.merging import pack_registry
from knative_gateway.running.opening import Opening
from knative_gateway.running.parent import Alone, Parent, ParentLink, raise_error
from knative_gateway.running.stopping import EXIT_S, GRACE_S, Deadline, Parts, cancelled
from knative_gateway.running.supervising import Supervisor
from knative_gateway.security.access import Gate
from knative_gateway.security.inward import Inward
from knative_gateway.security.tokens import credentials, wall_ms
from knative_gateway.store.opening import Store, create_folder, open_store, sqlite_url
from knative_gateway.tracing_setup import create_ingress, start_traces
from service_parts.event_loop import server_runner
from service_parts.networks import is_this_machine
from service_parts.settings.in_force import Shown

if TYPE_CHECKING:
    from knative_gateway.tracing import Traces

CONNECT_S_MAX: Final = 30.0
_LOOK_S: Final = 0.1
NOT_KEPT_S_MAX: Final = 60.0
"""If cursors were not stored for this time, the gateway is not ready."""

log = structlog.get_logger("knative_gateway")

Addresses = dict[str, list[str]]
Ready = Callable[[Addresses], None]
Reread = Callable[[], GatewaySettings]


def run(
    settings: GatewaySettings,
    *,
    ready: Ready | None = None,
    reread: Reread | None = None,
    shown: Shown | None = None,
    parent: Parent | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status.

    `ready` is called with the bound addresses: {"http": [...], "amqp": [...]}. `reread` reads the settings
    again on SIGHUP, and `shown` reads them with their sources. `parent`: the link of a worker to the other
    workers.

    Raises:
        GatewayError: the gateway cannot start; the message gives the reason.
    """
    deadline, limits = Deadline(), settings.limits
    try:
        with server_runner() as runner:
            stopping = partial(deadline.arm, settings.shutdown_delay + limits.drain + GRACE_S + EXIT_S)
            serving = partial(serve, settings, ready=ready, stopping=stopping)
            return runner.run(serving(reread=reread, shown=shown, parent=parent))
    finally:
        deadline.disarm()


async def serve(
    settings: GatewaySettings,
    *,
    ready: Ready | None = None,
    stop: asyncio.Event | None = None,
    reread: Reread | None = None,
    shown: Shown | None = None,
    stopping: Callable[[], None] = lambda: None,
    parent: Parent | None = None,
) -> int:
    """Serve on a running event loop.

    `stop` replaces the signals; `stopping` is called when the stop begins.
    """
    loop = asyncio.get_running_loop()
    ended = stop or asyncio.Event()
    gateway = Gateway(settings, reread=reread, shown=shown, parent=parent)
    handlers = (
        {} if stop else {signal.SIGTERM: ended.set, signal.SIGINT: ended.set, signal.SIGHUP: gateway.reload}
    )
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        starting = asyncio.create_task(gateway.start())
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            raise_error(starting, gateway.parent)
            announcing = asyncio.create_task(gateway.announce(ready))
            await ending
            await cancelled(announcing)
        else:
            starting.cancel()
            await asyncio.wait({starting})
    finally:
        stopping()
        await gateway.stop()
        for number in handlers:
            loop.remove_signal_handler(number)
    log.info("gateway_stopped")
    return 0


class Gateway:
    """The parts of a gateway, connected to each other."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        reread: Reread | None = None,
        shown: Shown | None = None,
        parent: Parent | None = None,
    ) -> None:
        self.settings: Final = settings
        self.parent: Final[Parent] = parent or Alone()
        self.health: Final = Health(self, None if self.parent.several else about(shown))
        self.is_up = False
        self.addresses: Final[Addresses] = {}
        self.registry: Final = CollectorRegistry()
        self.gate: Final = Gate()
        """Allows everything until `start` reads the tokens."""
        self.tasks: Final = Supervisor()
        self.event_log: AmqpEventLog | None = None
        self.node: EmbeddedNode | None = None
        self.controller: Controller | None = None
        self._api: Api | None = None
        self._http: HttpServer | None = None
        self._reread: Final = reread
        self._parts: Final = Parts()
        self._traces: Traces | None = None
        self._sender: Sender | None = None
        self._dispatcher: Dispatcher | None = None
        self._store: Store | None = None
        self._packed: Final = Figures(self.registry, build=pack_registry)
        self._opening: Final = Opening(self._parts)
        self._console: Final = GatewayConsole(settings, several=self.parent.several)

    async def start(self) -> None:
        """Start all parts.

        Raises:
            GatewayError: a part does not start.
        """
        settings, enter = self.settings, self._parts.enter
        if isinstance(self.parent, ParentLink):
            await enter("parent", self.parent.join(self))
        services, allowed = ServiceMap.parse(settings.services), destinations(settings)
        # Before the listener opens: until then the gate allows everything.
        self.gate.use(*credentials(settings, wall_ms))
        create_folder(settings.state_dir)
        traces = self._traces = start_traces(settings.traces, self._parts)
        store = await self._open_store()
        event_log = await self._start_log()
        authorizer = None if self.gate.open else self.gate
        ingress = create_ingress(event_log, traces, ingress_limits(settings), authorizer)
        ingress.starting, ingress.addressed = (
            True,
            addressed(store.resources) if self._shares(store) else None,
        )
        data_plane = GatewayDataPlane(ingress, forget=event_log.forget)
        sender = self._sender = await enter("sender", Sender(send_settings(settings), allowed))
        dispatcher = await self._start_dispatcher(event_log, store, sender, data_plane)
        GatewayFigures(self).register(
            self.registry, self.tasks, ingress.figures, DispatcherMetrics(dispatcher)
        )
        api = await self._start_api(event_log, store, dispatcher, data_plane)
        # The API listens before the controller runs, so that clients can already change resources; `/readyz`
        # and the ingress answer 503 until everything is served.
        await self._listen(api, ingress, event_log)
        await self._console.start(self._parts, self.addresses)
        # Only now: with port 0, the kernel has chosen the port when the listener was opened.
        url = base_url(self.settings, self.addresses["http"][0], shared=store.shared)
        inward = Inward(url, self.gate.may_pass)
        sender.inside = Inside(ingress, inward)
        controlling = controller_settings(settings, inward, services, allowed, delete_logs=not store.shared)
        if settings.resources is not None and self.parent.first:
            # Before the controller starts, so that its first list contains the resources.
            log.info("resources_applied", count=await load_directory(api, settings.resources))
        # No replica and no worker sees all deliveries, so they do not write counters into statuses.
        counters = None if self._shares(store) else dispatcher.counters
        controller = Controller(
            store.resources,
            event_log,
            data_plane,
            store.cursors,
            controlling,
            counters=counters,
            leads=self.parent.leads,
            tasks=self.tasks,
        )
        self.controller = await enter("controller", controller)
        await self._opening.begin(event_log, ingress, self.controller)
        self.is_up = True
        self._report_start(controlling.base_url)

    async def _start_dispatcher(
        self, event_log: AmqpEventLog, store: Store, sender: Sender, data_plane: GatewayDataPlane
    ) -> Dispatcher:
        dispatcher = Dispatcher(
            event_log,
            store.cursors,
            sender,
            dispatch_settings(self.settings, self._traces),
            ownership=event_log.shares() if self._shares(store) else None,
            changed=data_plane.changed,
            tasks=self.tasks,
        )
        data_plane.dispatcher = self._dispatcher = await self._parts.enter("dispatcher", dispatcher)
        return dispatcher

    async def _start_api(
        self, event_log: AmqpEventLog, store: Store, dispatcher: Dispatcher, data_plane: GatewayDataPlane
    ) -> Api:
        api = self._api = Api(
            store.resources,
            store.cursors,
            settings=ApiSettings(namespaces=Namespaces(self.settings.namespaces)),
            gate=self.gate,
            replays=DispatcherReplays(dispatcher, event_log, store.cursors),
            tasks=self.tasks,
            removed=data_plane.removed,
            health=self.health,
        )
        await api.start()
        return api

    async def _listen(self, api: Api, ingress: Ingress, event_log: AmqpEventLog) -> None:
        parent = self.parent
        web = Web(
            ingress,
            parent.figures if isinstance(parent, ParentLink) else Figures(self.registry).text,
            ready=lambda: self.missing() or parent.problem,
            trouble=lambda: parent.trouble,
            console=None if self.settings.console is None else self._console.location,
            routes=api.routes,
            is_local=self.gate.open and all(is_this_machine(each.host) for each in self.settings.listen),
        )
        fast_path = FastPath(ingress, event_log, asyncio.get_running_loop().time)
        self._http = await serve_http(
            web,
            self.settings.listen,
            limits=self.settings.limits,
            tls=self.settings.tls,
            shortcut=fast_path.open,
            tasks=self.tasks,
            shares_port=parent.several,
        )
        self.addresses["http"] = self._http.addresses

    def _report_start(self, base_url: str) -> None:
        garbage.search_seldom()
        if self.gate.open and any(not is_this_machine(listener.host) for listener in self.settings.listen):
            message = "every client that can connect may read and change resources and send events"
            log.warning("no_tokens", message=message, remedy="set tokens or jwt")
        log.info("gateway_ready", state_dir=str(self.settings.state_dir), url=base_url)

    async def announce(self, ready: Ready | None) -> None:
        """Report the addresses as soon as the gateway is ready."""
        if ready is not None:
            while self.missing() is not None:  # noqa: ASYNC110  many parts decide it
                await asyncio.sleep(_LOOK_S)
            ready(self.addresses)

    async def stop(self) -> None:
        """Stop all parts. May be called after a failed start."""
        was_up, self.is_up = self.is_up, False
        limits, delay_s = self.settings.limits, self.settings.shutdown_delay
        if was_up and delay_s and self._http is not None:
            log.info("stopping", shutdown_delay_s=delay_s)
            self._http.leave()
            await asyncio.sleep(delay_s)
        if self._http is not None:
            # Registered only now, so that API and listener are closed first: no request arrives while the
            # parts behind them end.
            self._parts.on_close("listener", partial(self._http.close, limits.drain))
        if self._api is not None:
            self._parts.on_close("api", self._api.close)
        await self._parts.close(limits.drain + GRACE_S)

    def reload(self) -> None:
        """SIGHUP: read certificates, tokens and rules again. If one of them is not valid, nothing changes."""
        if self._http is None:
            return
        try:
            settings = self._reread() if self._reread is not None else self.settings
            tokens, rules = credentials(settings, wall_ms)
            if self.gate.open is bool(tokens):
                message = "tokens: a reload cannot turn authentication on or off; restart the gateway"
                raise ConfigError(message)
            # All files are read before the first change.
            met = subscribers_tls(settings)
            self._http.reload()
            self.gate.use(tokens, rules)
            if self._sender is not None:
                self._sender.use(met)
        except ConfigError as error:
            log.error("gateway_not_reloaded", reason=str(error))
            self.health.not_reloaded(str(error))
        else:
            log.info("gateway_reloaded", tls=self.settings.tls is not None)
            self.health.reloaded(warn_of_restart(self.settings, settings))

    def lead(self) -> None:
        """Lead the workers of the gateway from now on. See `Member`."""
        if self.controller is not None:
            self.controller.lead()

    def notice(self) -> None:
        """Read what another worker has written. See `Member`."""
        if self._store is not None:
            self._store.notice()

    async def packed(self) -> bytes:
        """Return the metrics of this process for its parent. See `Member`."""
        return await self._packed.text()

    async def vitals(self) -> bytes:
        """Return what this process knows about itself, for another worker. See `Member`."""
        return await self.health.vitals()

    @property
    def shares_store(self) -> bool:
        """Whether other gateways use the same state database."""
        return self._store is not None and self._store.shared

    def uses(self) -> dict[str, Use]:
        """Return how much of each limit is in use in this process."""
        found: dict[str, Use] = {}
        if self._http is not None:
            found["connections"] = Use(self._http.connections, self.settings.limits.connections)
        if self.event_log is not None:
            found |= {name: Use(*use) for name, use in self.event_log.pending.items()}
        if self._sender is not None:
            slots = self._sender.connections.slots
            found["subscriberConnections"] = Use(slots.used, slots.max)
        return found

    async def _open_store(self) -> Store:
        settings, parent = self.settings, self.parent
        url = settings.store or sqlite_url(settings.state_dir)
        opening = open_store(url, tasks=self.tasks, files=parent.files, wrote=parent.wrote)
        self._store = await self._parts.enter("store", opening)
        return self._store

    def _shares(self, store: Store) -> bool:
        """Return whether other processes deliver events of the same Brokers."""
        return store.shared or self.parent.several

    async def _start_log(self) -> AmqpEventLog:
        """Start the node, unless the settings name one, and connect to it."""
        settings, limits = self.settings, self.settings.limits
        url = settings.amqp
        if url is None:
            self.node = await self._parts.enter("node", embedded_node(settings, self.tasks))
            url = self.node.url
            self.addresses["amqp"] = [self.node.address]
        appends = AppendLimits(events=limits.pending_events, bytes=limits.pending, wait_s=limits.append)
        self.event_log = await self._parts.enter(
            "event log", AmqpEventLog(url, limits=appends, drain_s=limits.drain, tasks=self.tasks)
        )
        try:
            await self.event_log.wait_connected(CONNECT_S_MAX)
        except GatewayError as error:
            # A node that the gateway did not start may become available later. Until then, senders get 503.
            log.warning("event_log_away", reason=str(error))
        return self.event_log

    @property
    def connected(self) -> bool:
        """Whether the event log node is connected."""
        return self.event_log is not None and self.event_log.connected

    @property
    def leads(self) -> bool:
        """Whether this process writes the statuses of objects."""
        return self.controller is not None and self.controller.leads

    @property
    def embedded_starts(self) -> int | None:
        """How often the embedded node was started. None if the gateway has no embedded node."""
        return None if self.node is None else self.node.starts

    @property
    def certificate_expires_at(self) -> float | None:
        """When the certificate of the listener expires, in seconds since 1970. None without TLS."""
        return None if self._http is None else self._http.certificate_expires_at

    @property
    def stored_s_ago(self) -> float | None:
        """Seconds since the positions of subscribers were last stored. None before the dispatcher starts."""
        return None if self._dispatcher is None else self._dispatcher.stored_s_ago

    def missing(self) -> str | None:
        """Return why this process is not ready; None if it is."""
        if not self.is_up:
            return "starting or stopping"
        stored = None if self._store is None else self._store.problem()
        logged = "the event log node is unreachable" if self.event_log is None else self.event_log.problem
        return stored or logged or self.tasks.problem or self._not_kept() or self._opening.problem

    def _not_kept(self) -> str | None:
        """Return why positions are not stored, for example a full disk. A crash would repeat deliveries."""
        seconds = self.stored_s_ago or 0.0
        words = f"positions have not been stored for {seconds:.0f} s: see the log"
        return words if seconds > NOT_KEPT_S_MAX else None
