"""The SQLite index over all threads: lists, rebuilding it, snapshots."""
