"""`amqp-streams config …`: the settings of `serve`, and where each comes from."""

from amqp_streams.cli.commands.serve import serve
from amqp_streams.cli.settings import checked_settings, file_contents
from service_parts.command_line.showing import config_commands

config = config_commands("amqp-streams", serve, checked_settings, file_contents)
