"""The health of the gateway for people: figures, warnings with remedies, settings, recent changes."""
