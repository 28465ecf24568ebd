"""Tests of app_server/handlers/plugins."""
