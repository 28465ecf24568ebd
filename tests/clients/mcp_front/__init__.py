"""Tests of app_server/clients/mcp_front."""
