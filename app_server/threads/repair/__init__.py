"""Checking a home from outside: locks, logs, and whether the index agrees with them."""
