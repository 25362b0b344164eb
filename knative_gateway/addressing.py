"""Resolves Destinations to absolute URLs. Pure: objects come from a lookup.

Each destination becomes an absolute http or https URL, or a reason why it cannot be resolved. A v1 Service
becomes `http://NAME.NAMESPACE.svc/`; any other object becomes its `status.address.url`. A `uri` together with
a `ref` is relative to that URL (RFC 3986).

The name of a Service has no meaning outside a cluster. `ServiceMap` maps it to a URL that the gateway can
reach. The mapping is the last step, so that the status shows the name. Only `NAME.NAMESPACE.svc` and
`NAME.NAMESPACE.svc.cluster.local` are names of Services, because a shorter name may be a host of the
internet.

Spec: knative-eventing-test-spec, "Destination Resolution".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from knative_gateway.errors import ConfigError
from knative_gateway.ports import Key
from knative_gateway.resources.hosts import ascii_host, is_dns_name
from knative_gateway.resources.objects import Object, child, entries, group_of, number, text
from knative_gateway.security.destinations import Destinations
from knative_gateway.security.inward import Inward

Lookup = Callable[[Key], Object | None]
CLUSTER_DOMAIN: Final = "cluster.local"
_CLUSTER_NAME: Final = re.compile(
    r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\.cluster\.local)?\.?"
)
_MAPPED: Final = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why a destination cannot be resolved: reason (one word) and message of the condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ServiceMap:
    """The base URL of each Service of a cluster, by `name.namespace`; see `parse`."""

    bases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, entries_: Mapping[str, str]) -> "ServiceMap":
        """Read the map from the settings.

        Raises:
            ConfigError: a name is not `name.namespace`, or a base is not an http or https URL.
        """
        for name, base in entries_.items():
            if not _MAPPED.fullmatch(name):
                raise ConfigError(f"service {name!r}: expected NAME.NAMESPACE")
            if not is_absolute(base):
                raise ConfigError(f"service {name!r}: {base!r} is not an http or https URL")
        return cls(dict(entries_))

    def knows(self, name: str, namespace: str) -> bool:
        """Return whether this Service is in the map. Then a Service object is not required."""
        return f"{name}.{namespace}" in self.bases

    def reached(self, url: str, lookup: Lookup) -> str:
        """Return the URL to connect to: the base in the map, the host of an ExternalName Service, or the URL
        itself.
        """
        parts = urlsplit(url)
        found = _CLUSTER_NAME.fullmatch(parts.hostname or "")
        if found is None:
            return url
        rest = urlunsplit(("", "", parts.path, parts.query, ""))
        base = self.bases.get(f"{found['name']}.{found['namespace']}")
        if base is not None:
            return base.rstrip("/") + (rest if rest.startswith("/") or not rest else f"/{rest}")
        service = lookup(Key("", "Service", found["namespace"], found["name"]))
        host = text(service, "spec", "externalName")
        if not is_dns_name(host) or text(service, "spec", "type") != "ExternalName":
            return url
        # A URL of a Service without a port means port 80 of the Service. The external host has no such
        # mapping, so the port of the Service is used.
        port = parts.port or _only_port(child(service))
        return urlunsplit((parts.scheme, f"{host}:{port}" if port else host, parts.path, parts.query, ""))


def _only_port(service: Object) -> int | None:
    """Return the port of a Service that has exactly one, for a URL without a port; else None."""
    ports = [number(each, "port") for each in entries(service, "spec", "ports")]
    return ports[0] if len(ports) == 1 and ports[0] else None


@dataclass(frozen=True, slots=True)
class Addressing:
    """Resolves destinations with the existing objects, the map of Services, and the allowed destinations.

    `brokers`: the beginning of the addresses of this gateway's Brokers. `inward`: which namespaces may send
    to them.
    """

    lookup: Lookup
    services: ServiceMap = field(default_factory=ServiceMap)
    allowed: Destinations | None = None
    brokers: str = ""
    inward: Inward | None = None

    def resolve(self, destination: Object, namespace: str) -> str | Unresolved:
        """Return the absolute URL of a Destination in an object of this namespace."""
        reference, uri = child(destination, "ref"), text(destination, "uri")
        if not reference:
            return (
                self._judged(uri, namespace)
                if is_absolute(uri)
                else Unresolved("InvalidURI", f"{uri!r} is not a valid absolute http or https URL")
            )
        base = self._address(reference, text(reference, "namespace") or namespace)
        if isinstance(base, Unresolved) or not uri:
            return base if isinstance(base, Unresolved) else self._judged(base, namespace)
        try:
            # RFC 3986, 5.2. It raises ValueError for a part that looks like an address in brackets and is not
            # one.
            joined = urljoin(base, uri)
        except ValueError:
            joined = ""
        return (
            self._judged(joined, namespace)
            if is_absolute(joined)
            else Unresolved("InvalidURI", f"{uri!r} is not a valid reference relative to {base}")
        )

    def reached(self, url: str) -> str:
        """Return the URL to connect to for a resolved URL."""
        return self.services.reached(url, self.lookup)

    def shown(self, url: str, namespace: str) -> str:
        """Return the URL to which events for a resolved URL are sent, for readers of this namespace.

        Empty if it is the URL itself, or if a Service of another namespace determines it.
        """
        found, reached = _CLUSTER_NAME.fullmatch(urlsplit(url).hostname or ""), self.reached(url)
        return (
            ""
            if found is None or reached == url or found["namespace"] != namespace
            else without_credentials(reached)
        )

    def _address(self, reference: Object, namespace: str) -> str | Unresolved:
        group, kind, name = (
            group_of(text(reference, "apiVersion")),
            text(reference, "kind"),
            text(reference, "name"),
        )
        found = self.lookup(Key(group, kind, namespace, name))
        is_service = (group, kind) == ("", "Service")
        if found is None and not (is_service and self.services.knows(name, namespace)):
            return Unresolved(
                "NotFound", f"{kind}{f'.{group}' if group else ''} {namespace}/{name} does not exist"
            )
        if is_service:
            return f"http://{name}.{namespace}.svc/"
        url = text(found, "status", "address", "url")
        if not url:
            return Unresolved("NotAddressable", f"{kind} {namespace}/{name} has no status.address.url")
        return (
            url
            if is_absolute(url)
            else Unresolved(
                "NotAddressable", f"{kind} {namespace}/{name}: {url!r} is not an absolute http or https URL"
            )
        )

    def _judged(self, url: str, namespace: str) -> str | Unresolved:
        """Return the URL if events may be sent to it.

        Brokers and Channels of this gateway are reached without a network, so the rules for namespaces
        decide.
        """
        if self.inward is not None and self.inward.path_of(self.reached(url)) is not None:
            forbidden = self.inward.refusal(self.reached(url), namespace)
            return url if forbidden is None else Unresolved("NamespaceForbidden", forbidden)
        refusal = self.allowed.refusal_of_url(self.reached(url)) if self.allowed else None
        return url if refusal is None else Unresolved("DestinationDenied", refusal)


def without_credentials(url: str) -> str:
    """Return a URL without `user:password@`, for statuses and messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url


def is_absolute(url: str) -> bool:
    """Return whether this is an absolute http or https URL with a host that can be looked up."""
    try:
        parts = urlsplit(url)
        # `urlsplit` checks the port only when it is read.
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and ascii_host(parts.hostname or "") is not None
