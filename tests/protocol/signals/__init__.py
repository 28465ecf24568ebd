"""Tests of protocol/signals."""
