"""Descriptions of the API: discovery and OpenAPI documents."""
