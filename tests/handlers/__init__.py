"""Tests of methods over the wire."""
