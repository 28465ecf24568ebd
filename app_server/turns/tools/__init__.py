"""Calls that a model makes: routing, scheduling, metadata."""
