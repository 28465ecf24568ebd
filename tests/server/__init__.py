"""Tests of a whole server."""
