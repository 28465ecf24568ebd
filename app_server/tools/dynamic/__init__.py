"""Tools that a client declares for a thread and runs itself."""
