"""Tests of app_server/mcp_wire."""
