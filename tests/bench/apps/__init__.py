"""Benchmarks of the Apps service."""
