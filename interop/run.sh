#!/usr/bin/env bash
# Other people's AMQP clients against a node of this checkout: all of them, or those named. See README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/amqp-streams ] || make setup
.venv/bin/python -m interop.check "$@"
exec .venv/bin/python -m interop.logins "$@"
