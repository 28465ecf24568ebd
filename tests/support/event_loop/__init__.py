"""The event loop of a test: its clock, who gets turns on it, its worker threads."""
