"""What pages show, as texts and values. Pure."""
