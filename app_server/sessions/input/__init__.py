"""Input into a loaded thread: of clients, of its inbox, of its queue."""
