"""The web console: logs, events and consumer groups of a node in a browser.

It is a client of the node, with the login of the person who uses it (docs/console.md).
"""
