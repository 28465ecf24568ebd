"""The bench: a client that measures running app-servers side by side."""
