"""From objects and reports to status, routes and logs: decisions only. Pure."""
