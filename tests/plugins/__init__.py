"""Tests of app_server/plugins."""
