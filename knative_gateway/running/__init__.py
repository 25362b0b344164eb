"""[io] The process: tasks that must run, an orderly stop, logging."""
