"""The common parts of command-line programs: commands, exit statuses, and the flags of `serve`."""
