"""Text in and text out: what people type, and what they are shown."""
