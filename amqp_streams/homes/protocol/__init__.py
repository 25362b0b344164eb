"""The protocol between nodes: frames, reports and answers as JSON, and the proofs of both sides. Pure."""
