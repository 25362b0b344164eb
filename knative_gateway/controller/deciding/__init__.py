"""Computes statuses, routes and logs from objects and from the reports of the data plane. Pure."""
