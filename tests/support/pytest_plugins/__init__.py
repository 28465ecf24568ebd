"""Plug-ins of pytest, named in pyproject.toml.

They import nothing of the server: the process that hands out the tests loads them as well.
"""
