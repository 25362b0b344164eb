"""Changes of groups and cursors that users ask for, at any node: decided and made at the home. Pure."""
