"""Benchmarks of what is stored: the index of threads, and their history."""
