"""`serve` tells every flag with its variable."""

import click

from knative_gateway.cli.serve import serve
from knative_gateway.cli.settings import settable, variable_of


def test_every_flag_of_a_setting_names_its_variable() -> None:
    known = {"__".join(name): name for name in settable()}
    options = {option.name: option for option in serve.params if isinstance(option, click.Option)}
    for key, option in options.items():
        if key in {"config", "ready_file", "ready_fd"}:
            continue
        assert key is not None
        assert f"[{variable_of(known[key])}]" in (option.help or "")
