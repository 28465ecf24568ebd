"""What has come and what became of it, in a SQLite file."""
