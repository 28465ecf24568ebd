"""Turns on the wire: their items, what the model may do, and what the user is asked meanwhile."""
