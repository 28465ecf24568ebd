"""Tests of app_server/tools/mcp."""
