"""Tests of app_server/host/exec/server."""
