"""Benchmarks: they print figures and check nothing."""
