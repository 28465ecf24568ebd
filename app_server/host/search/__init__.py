"""Fuzzy search of files by path: listing, ignore rules, ranking.

Knows: folders, ignore files, queries. Does not know: clients, methods.
"""
