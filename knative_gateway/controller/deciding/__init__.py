"""Decides statuses, routes and logs from objects and reports. Pure."""
