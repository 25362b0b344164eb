"""Targets: The Knative gateway."""
