"""Text input and output: what users type, and what they see."""
