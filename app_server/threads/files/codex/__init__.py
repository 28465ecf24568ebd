"""Threads that Codex wrote in the same home: found, shown and imported, never changed.

Knows: the files and lines of Codex 0.169.0 and of older versions.
Does not know: our own logs, the index.
Source: docs/storage.md, "Threads of Codex".
"""
