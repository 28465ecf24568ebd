"""Tests of protocol/export."""
