"""Threads on disk: stores, logs and histories."""
