"""The hub: all clients, the threads that each listens to, events kept for them, their questions."""
