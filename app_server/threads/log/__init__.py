"""The log of one thread: records appended, read back, locked, repaired."""
