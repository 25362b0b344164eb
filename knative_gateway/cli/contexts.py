"""The contexts of `knative-gateway`: which settings they have, and the commands `context …`."""

from typing import Final

from service_parts.command_line.contexts.commands import context_commands
from service_parts.command_line.contexts.settings import Form, Kind, Setting, secret_settings

CONTEXTS: Final = Kind(
    "knative-gateway",
    "KNATIVE_GATEWAY_",
    "server",
    (
        Setting("server", "URL", "The gateway: http:// or https://."),
        *secret_settings("token"),
        Setting("ca", "FILE", "Certificate authorities of the server, PEM.", Form.PATH),
        Setting("namespace", "NAME", "The namespace of objects without one."),
    ),
)
context = context_commands(
    CONTEXTS,
    "--server https://events.example.org --token-command 'pass show events'",
    "http://127.0.0.1:8080",
)
