"""Tests of the homes of groups and cursors."""
