"""Tests of protocol, and of the schema made from it."""
