"""Tests of app_server/mcp/tools."""
