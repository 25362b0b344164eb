"""What a node and a gateway need alike as services: command line, settings, log lines, tokens. It imports neither of them."""
