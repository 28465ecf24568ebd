"""Patches of files: read, matched with what is there, written whole or not at all.

Does not know: turns, clients, models.
"""
