"""Tests of app_server/tools/plugins."""
