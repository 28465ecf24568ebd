"""Tests of app_server/handlers/server."""
