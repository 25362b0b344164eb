"""What people who run a service want to know: figures of the machine, warnings, recent changes."""
