"""Grafana's dashboards of the products, made from tables of panels."""
