"""Requests that are sent again: one of every method that changes something, and what it changes."""
