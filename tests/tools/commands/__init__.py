"""Tests of app_server/tools/commands."""
