"""The health of a gateway: what it says about itself, and the page that shows it."""
