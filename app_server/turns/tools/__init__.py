"""Calls that a model makes: their declarations, and the table that finds the tool of each."""
