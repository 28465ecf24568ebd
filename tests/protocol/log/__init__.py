"""Tests of protocol/log."""
