"""`knative-gateway config …`: the settings of `serve`, and where each comes from."""

from knative_gateway.cli.commands.serve import serve
from knative_gateway.cli.settings import checked_settings, file_contents
from service_parts.command_line.showing import config_commands

config = config_commands("knative-gateway", serve, checked_settings, file_contents)
