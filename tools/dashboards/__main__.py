"""[io] Writes Grafana's dashboards into deploy/grafana/dashboards. `make reference` runs it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.dashboards.gateway import GATEWAY
from tools.dashboards.kafka import KAFKA
from tools.dashboards.node import NODE
from tools.dashboards.panels import Dashboard

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
DASHBOARDS: Final[Mapping[str, Dashboard]] = {"node": NODE, "gateway": GATEWAY, "kafka": KAFKA}
"""By the names of their files."""


def written(dashboard: Dashboard) -> str:
    """Return the text of the file."""
    return json.dumps(dashboard.json(), indent=2) + "\n"


def main() -> None:
    """Write all files."""
    for name, dashboard in DASHBOARDS.items():
        (FOLDER / f"{name}.json").write_text(written(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
