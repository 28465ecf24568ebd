"""Counts of use, on this machine alone: turns, items, tokens, questions. Nothing is sent.

Knows: types of events. Does not know: who emits them, clients, what anything was about.
"""
