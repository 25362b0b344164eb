"""The contexts of `amqp-streams`: which settings they have, and the commands `context …`."""

from typing import Final

from service_parts.command_line.contexts.commands import context_commands
from service_parts.command_line.contexts.settings import Form, Kind, Setting, secret_settings

CONTEXTS: Final = Kind(
    "amqp-streams",
    "AMQP_STREAMS_",
    "url",
    (
        Setting("url", "URL", "The node: amqp:// amqps:// ws:// wss://[USER@]HOST[:PORT]."),
        Setting("user", "NAME", "The user."),
        *secret_settings("password"),
        *secret_settings("token"),
        Setting("sasl_mechanism", "NAME", "Log in with this mechanism only, for example SCRAM-SHA-256."),
        Setting("plain_without_tls", "", "Allow sending the password or token without TLS.", Form.SWITCH),
        Setting("ca", "FILE", "Trust these authorities, PEM.", Form.PATH),
        Setting("cert", "FILE", "The client's certificate, PEM.", Form.PATH),
        Setting("key_file", "FILE", "Its private key, PEM.", Form.PATH),
        Setting("insecure", "", "Do not check the node's certificate. Only for tests.", Form.SWITCH),
    ),
)
context = context_commands(
    CONTEXTS, "--url amqps://streams.example.org --password-command 'pass show prod'", "amqp://127.0.0.1"
)
