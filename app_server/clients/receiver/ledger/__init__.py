"""Ledger of received signals and their outcomes, in a SQLite file."""
