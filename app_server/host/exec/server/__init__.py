"""The exec server: what it starts for its clients, reads and writes for them, and within what."""
