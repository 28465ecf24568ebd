"""Figures of threads in PostgreSQL, beside those of files in the same run."""
