"""Patches of objects: JSON patch, merge patches, server-side apply. Pure."""
