"""The executable as its users start it."""
