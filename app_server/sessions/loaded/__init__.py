"""The loaded threads: their registry, loading, and unloading once they are quiet."""
