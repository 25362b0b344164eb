"""`python -m amqp_streams.cli`: the same as `amqp-streams`."""

from amqp_streams.cli.program import main

main(prog_name="amqp-streams")
