"""Tests, their harness, and the benchmarks."""
