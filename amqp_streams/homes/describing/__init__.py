"""Descriptions of groups and cursors: made by their homes, and asked for by the other nodes. Pure."""
