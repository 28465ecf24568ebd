"""Tests of app_server/mcp/servers."""
