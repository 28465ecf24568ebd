"""The hub: all clients, the threads that each is subscribed to, events kept for them, questions."""
