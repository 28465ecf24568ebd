"""A router on this machine, to try the receiver with, and for tests."""
