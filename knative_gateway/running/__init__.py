"""[io] The process: supervised tasks, and an orderly stop."""
