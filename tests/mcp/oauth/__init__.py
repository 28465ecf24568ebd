"""Tests of app_server/mcp/oauth."""
