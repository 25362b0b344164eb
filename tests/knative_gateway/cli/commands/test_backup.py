"""`knative-gateway backup` copies the state directory that `serve` uses."""

import json
from pathlib import Path

from click.testing import CliRunner

from knative_gateway.cli import main
from knative_gateway.store import open_store, sqlite_url


async def test_the_database_of_the_settings_is_copied(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)):
        pass
    target, config = tmp_path / "copy.db", tmp_path / "gateway.toml"
    config.write_text(f'state_dir = "{tmp_path}"\n')
    done = CliRunner().invoke(main, ["backup", str(target), "--config", str(config), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bytes"] == target.stat().st_size
    again = CliRunner().invoke(main, ["backup", str(target), "--state-dir", str(tmp_path)])
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr


def test_postgresql_is_refused(tmp_path: Path) -> None:
    environment = {"KNATIVE_GATEWAY_STORE": "postgresql://gateway@localhost/db"}
    done = CliRunner().invoke(main, ["backup", str(tmp_path / "copy.db")], env=environment)
    assert done.exit_code == 2
    assert "pg_dump" in done.stderr
    assert not list(tmp_path.iterdir())
