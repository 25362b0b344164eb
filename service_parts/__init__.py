"""What a node and a gateway have in common as services: command line, settings, logging, tokens. Imports
neither.
"""
