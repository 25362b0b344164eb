"""OpenAPI schemas of kinds, and documents checked against them. Pure."""
