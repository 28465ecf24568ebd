"""Tests of app_server/mcp/catalog."""
