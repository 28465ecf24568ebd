"""Finds files by letters of their paths: what is listed, what is ignored, what fits best.

Knows: folders, ignore files, queries. Does not know: clients, methods.
"""
