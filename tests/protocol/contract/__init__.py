"""Tests of protocol/contract."""
