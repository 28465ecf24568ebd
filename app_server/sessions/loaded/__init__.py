"""The loaded threads: which they are, loading them, and unloading those that are quiet."""
