"""Tests of protocol/jsonrpc."""
